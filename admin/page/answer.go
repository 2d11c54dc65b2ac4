package page

import (
	"bytes"
	"encoding/json"
	"fmt"
	"net/http"
	"strings"
	"unicode"

	"github.com/sluice-net/sluice/api/text"
)

// Bounds on every answer. Whoever may write an object that a page shows chooses how
// much of it there is.
const (
	// maxText is how many bytes of one text are shown.
	maxText = 2 << 10
	// maxList is how many elements of a list are shown, maxDepth how deep lists are nested.
	maxList  = 2000
	maxDepth = 16
	// maxAnswer is the size of the largest answer.
	maxAnswer = 16 << 20
	// maxStateText and maxState apply to the state, which a page polls. It exceeds maxState
	// only if its texts cannot be shortened further.
	maxStateText = 1 << 10
	maxState     = 4 << 20
	// minText is the length below which texts are not shortened.
	minText = 64
)

// bounded returns the JSON form of a value with every text and list truncated, and without
// characters that change how others are displayed. Texts are shortened further as long as
// the result is larger than wanted.
func bounded(value any, longest, wanted int) ([]byte, error) {
	raw, err := json.Marshal(value)
	if err != nil {
		return nil, err
	}
	d := json.NewDecoder(bytes.NewReader(raw))
	d.UseNumber()
	var tree any
	if err := d.Decode(&tree); err != nil {
		return nil, err
	}
	for ; ; longest /= 2 {
		tree = cut(tree, longest, maxDepth)
		out, err := json.Marshal(tree)
		if err == nil && len(out) > wanted && longest/2 >= minText {
			continue
		}
		if err == nil && len(out) > maxAnswer {
			err = fmt.Errorf("the answer is larger than the page can show: %d MiB", len(out)>>20)
		}
		return out, err
	}
}

// cut bounds what json.Decoder makes of JSON.
func cut(value any, most, depth int) any {
	switch v := value.(type) {
	case string:
		return harmless(v, most)
	case []any:
		if depth == 0 {
			return nil
		}
		v = v[:min(len(v), maxList)]
		for i := range v {
			v[i] = cut(v[i], most, depth-1)
		}
		return v
	case map[string]any:
		if depth == 0 {
			return nil
		}
		for k := range v {
			if len(k) > most || len(v) > maxList {
				delete(v, k)
				continue
			}
			v[k] = cut(v[k], most, depth-1)
		}
		return v
	}
	return value
}

// harmless truncates a text, and replaces control and format characters, which could be
// invisible or change the direction of the text.
func harmless(s string, most int) string {
	return strings.Map(func(r rune) rune {
		if r != '\n' && (unicode.IsControl(r) || unicode.Is(unicode.Cf, r)) {
			return unicode.ReplacementChar
		}
		return r
	}, text.Cut(s, most))
}

// answer sends a value as JSON.
func answer(w http.ResponseWriter, value any) { send(w, value, maxText, maxAnswer) }

// send is answer with other bounds.
func send(w http.ResponseWriter, value any, longest, wanted int) {
	out, err := bounded(value, longest, wanted)
	if err != nil {
		fail(w, http.StatusInternalServerError, err)
		return
	}
	w.Header().Set("Content-Type", "application/json")
	_, _ = w.Write(out) // the page may be gone
}

// fail sends why something did not work.
func fail(w http.ResponseWriter, code int, err error) {
	http.Error(w, harmless(err.Error(), maxText), code)
}
