package release

import (
	"fmt"
	"io"
	"os"

	"helm.sh/helm/v4/pkg/strvals"
	"sigs.k8s.io/yaml"
)

// Sources are where the user's values come from, as with Helm.
type Sources struct {
	Files     []string // of YAML; "-" is the standard input
	Set       []string // KEY=VALUE,...
	SetString []string // the same, whatever the values look like
}

// Read puts the values together. Of several that say something else the last one
// holds, and single ones hold against files.
func (s Sources) Read(stdin io.Reader) (Values, error) {
	v := Values{}
	for _, file := range s.Files {
		b, err := readFile(file, stdin)
		if err != nil {
			return nil, fmt.Errorf("--values: %w", err)
		}
		var more Values
		if err := yaml.Unmarshal(b, &more); err != nil {
			return nil, fmt.Errorf("--values %s: %w", file, err)
		}
		v = merge(v, more)
	}
	for _, text := range s.Set {
		if err := strvals.ParseInto(text, v); err != nil {
			return nil, fmt.Errorf("--set %s: %w", text, err)
		}
	}
	for _, text := range s.SetString {
		if err := strvals.ParseIntoString(text, v); err != nil {
			return nil, fmt.Errorf("--set-string %s: %w", text, err)
		}
	}
	return v, nil
}

func readFile(name string, stdin io.Reader) ([]byte, error) {
	if name == "-" {
		return io.ReadAll(stdin)
	}
	return os.ReadFile(name)
}
