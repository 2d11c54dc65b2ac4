package template

import (
	"errors"
	"fmt"
	"strings"
	texttemplate "text/template"
	"text/template/parse"
	"time"
)

// Bounds of one string.
const (
	maxSource = 16 << 10
	maxText   = 64 << 10
	maxRounds = 10_000
)

// maxTime is for the whole object, a hundred thousand times what one takes. It
// is the net under the bounds of length: comparing long texts takes long, too.
const maxTime = 10 * time.Second

var errTooSlow = fmt.Errorf("rendering takes more than %v", maxTime)

// execute renders one string over vars.
func execute(source string, vars map[string]any, deadline time.Time) (string, error) {
	if !strings.Contains(source, "{{") {
		return source, nil
	}
	if time.Now().After(deadline) {
		return "", errTooSlow
	}
	if len(source) > maxSource {
		return "", fmt.Errorf("a template of more than %d bytes", maxSource)
	}
	rounds := 0
	t, err := texttemplate.New("value").Option("missingkey=error").Funcs(texttemplate.FuncMap{
		roundFunction: func() (string, error) {
			if rounds++; rounds > maxRounds {
				return "", fmt.Errorf("more than %d rounds of range", maxRounds)
			}
			if time.Now().After(deadline) {
				return "", errTooSlow
			}
			return "", nil
		},
		"print": bounded(fmt.Sprint), "println": bounded(fmt.Sprintln), "printf": printf,
		"html": bounded(texttemplate.HTMLEscaper), "js": bounded(texttemplate.JSEscaper), "urlquery": bounded(texttemplate.URLQueryEscaper),
	}).Parse(source)
	if err != nil {
		return "", err
	}
	if len(t.Templates()) > 1 {
		return "", errNoTemplates
	}
	if t.Tree == nil { // nothing but spaces and comments
		return "", nil
	}
	if err := countRounds(t.Root); err != nil {
		return "", err
	}
	var out writer
	if err := t.Execute(&out, vars); err != nil {
		return "", err
	}
	return out.String(), nil
}

var errNoTemplates = errors.New("define, block and template are not available")

// roundFunction is called at the beginning of each round of a loop.
const roundFunction = "_round"

// countRounds inserts that call, and refuses what could recurse.
func countRounds(list *parse.ListNode) error {
	if list == nil {
		return nil
	}
	for _, n := range list.Nodes {
		var err error
		switch n := n.(type) {
		case *parse.TemplateNode:
			return errNoTemplates
		case *parse.IfNode:
			err = errors.Join(countRounds(n.List), countRounds(n.ElseList))
		case *parse.WithNode:
			err = errors.Join(countRounds(n.List), countRounds(n.ElseList))
		case *parse.RangeNode:
			err = errors.Join(countRounds(n.List), countRounds(n.ElseList))
			n.List.Nodes = append([]parse.Node{roundCall()}, n.List.Nodes...)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

// roundCall is the parsed form of the call.
func roundCall() parse.Node {
	trees, err := parse.Parse("round", "{{"+roundFunction+"}}", "", "", map[string]any{roundFunction: func() string { return "" }})
	if err != nil {
		panic(fmt.Sprintf("the parser refuses a constant: %v", err))
	}
	return trees["round"].Root.Nodes[0]
}

var errTooLong = fmt.Errorf("a text of more than %d bytes", maxText)

// writer is a strings.Builder that fills up.
type writer struct{ strings.Builder }

func (w *writer) Write(b []byte) (int, error) {
	if w.Len()+len(b) > maxText {
		return 0, errTooLong
	}
	return w.Builder.Write(b)
}

// bounded is f for arguments, and with a result, of bounded length: repeated, a
// function that makes text longer makes it grow exponentially.
func bounded(f func(...any) string) func(...any) (string, error) {
	return func(args ...any) (string, error) {
		size := 0
		for _, a := range args {
			size += length(a)
		}
		if size > maxText {
			return "", errTooLong
		}
		s := f(args...)
		if len(s) > maxText {
			return "", errTooLong
		}
		return s, nil
	}
}

// printf is fmt.Sprintf, which makes any length out of "%999999d".
func printf(format string, args ...any) (string, error) {
	longest := 0
	for _, a := range args {
		longest = max(longest, length(a))
	}
	size := len(format)
	for rest := format; ; {
		_, verb, found := strings.Cut(rest, "%")
		if !found {
			break
		}
		rest = strings.TrimLeft(verb, "+-# 0123456789.[]*")
		width := 0
		for _, c := range verb[:len(verb)-len(rest)] {
			switch {
			case c == '*':
				return "", errors.New("printf: a width given by an argument")
			case c < '0' || c > '9':
				width = 0
			default:
				width = 10*width + int(c-'0')
			}
			if width > 255 {
				return "", errors.New("printf: a width of more than 255")
			}
		}
		// A verb may stand for all arguments, as "%!(EXTRA ...)" does.
		if size += 2*255 + longest; size > maxText {
			return "", errTooLong
		}
		rest = strings.TrimPrefix(rest, "%")
	}
	return bounded(func(args ...any) string { return fmt.Sprintf(format, args...) })(args...)
}

// length is that of the text of a value.
func length(v any) int {
	if s, ok := v.(string); ok {
		return len(s)
	}
	return len(fmt.Sprint(v))
}
