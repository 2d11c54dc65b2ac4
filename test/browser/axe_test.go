package browser

import (
	"net/url"
	"strings"
	"testing"

	"github.com/sluice-net/sluice/test/source"
)

// TestAxe: axe-core finds faults of the kinds that a page may have, and none in a page
// without.
func TestAxe(t *testing.T) {
	if _, err := source.Axe(); err != nil {
		source.Lacks(t, "%v", err)
	}
	p := Open(t, 800, 600, false)
	const page = `<!doctype html><html lang="en"><title>A page</title><main><h1>A page</h1>`
	for _, tt := range []struct{ rule, page string }{
		{"", page + `<button>Press</button><p>Text`},
		{"button-name", page + `<button></button>`},
		{"color-contrast", page + `<p style="color:#999;background:#fff">Text`},
		{"target-size", page + `<button style="width:9px;height:9px;padding:0;border:0;font-size:5px">a</button><button style="width:9px;height:9px;padding:0;border:0;font-size:5px">b</button>`},
		{"heading-order", page + `<h4>Deep</h4>`},
		{"html-has-lang", strings.Replace(page, ` lang="en"`, "", 1)},
	} {
		p.Go("data:text/html," + url.PathEscape(tt.page+"<p id=end-"+tt.rule+">."))
		p.Until(`document.getElementById("end-` + tt.rule + `")`)
		faults, err := p.Axe()
		if err != nil {
			t.Fatal(err)
		}
		if tt.rule == "" && len(faults) == 0 || tt.rule != "" && len(faults) > 0 && strings.HasPrefix(faults[0], tt.rule+": ") {
			continue
		}
		t.Errorf("%q: %q", tt.rule, faults)
	}
}
