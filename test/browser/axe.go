package browser

import (
	"os"

	"github.com/sluice-net/sluice/test/source"
)

// judge runs axe-core: the rules of WCAG 2.0 to 2.2, levels A and AA, and best practices.
// The result is what violates them, one line for each element. A page that changes
// meanwhile may look wrong once: what is wrong is so three times.
const judge = `(async () => {
	let faults = [];
	for (let i = 0; i < 3; i++) {
		const { violations } = await axe.run(document, {
			resultTypes: ["violations"],
			runOnly: ["wcag2a", "wcag2aa", "wcag21a", "wcag21aa", "wcag22aa", "best-practice"],
			rules: { "target-size": { enabled: true } },
		});
		faults = violations.flatMap((v) => v.nodes.map((n) => v.id + ": " + [...n.any, ...n.all, ...n.none].map((c) => c.message).join("; ") + ": " + n.html.slice(0, 200)));
		if (!faults.length) break;
	}
	return faults;
})()`

// Axe returns what axe-core finds wrong with the page as it is now. Without axe-core the
// error says what to do.
func (p *Page) Axe() ([]string, error) {
	p.t.Helper()
	path, err := source.Axe()
	if err != nil {
		return nil, err
	}
	var there bool
	if p.Must(`"axe" in window`, &there); !there {
		script, err := os.ReadFile(path)
		if err != nil {
			return nil, err
		}
		p.Must(string(script), nil)
	}
	var faults []string
	p.Must(judge, &faults)
	return faults, nil
}
