// Command vet is the linter of this repository, called by `go vet -vettool`: what go vet finds, and a few analyzers more.
// Go vet runs it once for each package and keeps the result in the build cache, so that only what has changed is
// looked at again.
package main

import (
	"encoding/json"
	"fmt"
	"go/ast"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"codeberg.org/polyfloyd/go-errorlint/errorlint"
	"github.com/gordonklaus/ineffassign/pkg/ineffassign"
	"github.com/nishanths/exhaustive/passes/exhaustive"
	"go-simpler.org/sloglint"
	"golang.org/x/tools/go/analysis"
	"golang.org/x/tools/go/analysis/passes/printf"
	"golang.org/x/tools/go/analysis/unitchecker"
	"honnef.co/go/tools/analysis/facts/deprecated"
	"honnef.co/go/tools/analysis/lint"
	"honnef.co/go/tools/simple"
	"honnef.co/go/tools/staticcheck"
	"honnef.co/go/tools/stylecheck"
)

// module and wireguard are the modules whose packages are looked at. Of wireguard, a copy, only the files that we
// have added are ours to mend.
const (
	module    = "github.com/sluice-net/sluice"
	wireguard = "golang.zx2c4.com/wireguard"
)

// left are the checks of staticcheck that are not made, each with the reason.
var left = map[string]string{
	"ST1000": "that each package has a comment is tested in deps_test.go, which also knows packages for other systems",
	"ST1003": "names come from the RFCs and from Kubernetes: their spelling is kept",
	"SA5009": "go vet's printf finds the same",
	"ST1016": "a type has one receiver name unless two kinds of test share it",
}

func analyzers() []*analysis.Analyzer {
	// The toolchain's own: copied locks, lost cancels, wrong format verbs.
	all := slices.Clone(goVet)
	// Real bugs, needless code and common style, with hardly a false alarm. Quickfix, which suggests another way to
	// write what is right, is not among them.
	for _, checks := range [][]*lint.Analyzer{staticcheck.Analyzers, simple.Analyzers, stylecheck.Analyzers} {
		for _, check := range checks {
			if left[check.Analyzer.Name] == "" {
				all = append(all, only(check.Analyzer, isNoConstant))
			}
		}
	}
	all = append(all,
		// Code that nothing calls misleads the reader.
		unusedCode,
		// An assignment that nothing reads is a mistake or a leftover.
		ineffassign.Analyzer,
		// Every exported name is documented; what the comment looks like is for staticcheck.
		documented,
		// One name for one Kubernetes package, everywhere.
		importNames,
		// A log that can be searched: constant messages, and keys with values.
		sloglint.New(&sloglint.Options{StaticMessage: true, NoMixedArguments: true}),
		// Errors are wrapped here (%w): == and type assertions on them break silently. A test of a codec asks for the
		// sentinel itself, not for something that wraps it.
		only(errorlint.NewAnalyzer(), func(file string, _ analysis.Diagnostic) bool { return !strings.HasSuffix(file, "_test.go") }),
		// A new drop reason must not fall through a switch, and a default case is no answer: it hides the new reason.
		verdicts(),
	)
	for _, a := range all {
		obey(a)
	}
	return all
}

// isNoConstant lets one of many constants be explained as "Name: what it stands for".
func isNoConstant(_ string, d analysis.Diagnostic) bool {
	return !strings.HasPrefix(d.Message, "comment on exported const ")
}

// verdicts checks that what chooses by a Verdict names each.
func verdicts() *analysis.Analyzer {
	a := exhaustive.Analyzer
	for flag, value := range map[string]string{"check": "switch,mapliteral", "typeonly": `\.Verdict$`} {
		if err := a.Flags.Set(flag, value); err != nil {
			panic(err)
		}
	}
	return a
}

func main() {
	if last := os.Args[len(os.Args)-1]; strings.HasSuffix(last, ".cfg") && isDependency(last) {
		// Of the packages of others go vet asks for nothing but facts, and these two are worth their time: which
		// functions print, and what is deprecated.
		unitchecker.Run(last, []*analysis.Analyzer{printf.Analyzer, deprecated.Analyzer})
	}
	unitchecker.Main(analyzers()...)
}

// isDependency tells whether a description of work is about a package of others.
func isDependency(file string) bool {
	var work unitchecker.Config
	b, err := os.ReadFile(file)
	if err == nil {
		err = json.Unmarshal(b, &work)
	}
	return err == nil && work.VetxOnly && !below(work.ImportPath, module)
}

func below(path, base string) bool { return path == base || strings.HasPrefix(path, base+"/") }

// only lets an analyzer report what is worth it.
func only(a *analysis.Analyzer, worth func(file string, d analysis.Diagnostic) bool) *analysis.Analyzer {
	run := a.Run
	a.Run = func(pass *analysis.Pass) (any, error) {
		report := pass.Report
		pass.Report = func(d analysis.Diagnostic) {
			if worth(pass.Fset.Position(d.Pos).Filename, d) {
				report(d)
			}
		}
		return run(pass)
	}
	return a
}

// obey makes an analyzer keep silent about generated files, about files that others wrote, and where a comment
// says so: `//lint:ignore NAME reason`, on the line or above it. A comment that silences nothing is reported.
func obey(a *analysis.Analyzer) {
	run := a.Run
	a.Run = func(pass *analysis.Pass) (any, error) {
		report := pass.Report
		type place struct {
			file string
			line int
		}
		others, ignored, silenced := map[string]bool{}, map[place]*ast.Comment{}, map[*ast.Comment]bool{}
		for _, f := range pass.Files {
			name := pass.Fset.Position(f.Package).Filename
			others[name] = ast.IsGenerated(f) || below(pass.Pkg.Path(), wireguard) && !strings.HasPrefix(filepath.Base(name), "direct")
		}
		for _, d := range lint.ParseDirectives(pass.Files, pass.Fset) {
			if d.Command == "ignore" && len(d.Arguments) > 0 && d.Arguments[0] == a.Name {
				if len(d.Arguments) == 1 {
					report(analysis.Diagnostic{Pos: d.Directive.Pos(), Message: "say why this is ignored"})
				}
				for _, pos := range []token.Pos{d.Directive.Pos(), d.Node.Pos()} {
					p := pass.Fset.Position(pos)
					ignored[place{p.Filename, p.Line}] = d.Directive
				}
			}
		}
		pass.Report = func(d analysis.Diagnostic) {
			p := pass.Fset.Position(d.Pos)
			if comment := ignored[place{p.Filename, p.Line}]; comment != nil {
				silenced[comment] = true
			} else if !others[p.Filename] {
				d.Message = fmt.Sprintf("%s (%s)", d.Message, a.Name)
				report(d)
			}
		}
		result, err := run(pass)
		for _, comment := range ignored {
			if !silenced[comment] {
				silenced[comment] = true
				report(analysis.Diagnostic{Pos: comment.Pos(), Message: "there is nothing to ignore here: " + a.Name})
			}
		}
		return result, err
	}
}
