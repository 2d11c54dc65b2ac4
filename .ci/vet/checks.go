package main

import (
	"go/ast"
	"go/token"
	"path"
	"strconv"
	"strings"

	"golang.org/x/tools/go/analysis"
	"honnef.co/go/tools/unused"
)

// unusedCode reports what staticcheck's U1000 finds; go vet would only compute it. A package is looked at together
// with its tests, so what only they use is used.
var unusedCode = &analysis.Analyzer{
	Name:     "unused",
	Doc:      "report code that nothing uses",
	Requires: []*analysis.Analyzer{unused.Analyzer.Analyzer},
	Run: func(pass *analysis.Pass) (any, error) {
		for _, object := range pass.ResultOf[unused.Analyzer.Analyzer].(unused.Result).Unused {
			if object.Kind == "type param" {
				continue
			}
			pass.Fset.Iterate(func(f *token.File) bool {
				if f.Name() != object.Position.Filename {
					return true
				}
				pass.Reportf(f.LineStart(object.Position.Line), "%s %s is unused", object.Kind, object.Name)
				return false
			})
		}
		return nil, nil
	},
}

// documented reports exported names without a comment.
var documented = &analysis.Analyzer{
	Name: "documented",
	Doc:  "report exported names without a comment",
	Run: func(pass *analysis.Pass) (any, error) {
		check := func(name *ast.Ident, comments ...*ast.CommentGroup) {
			for _, c := range comments {
				if c != nil {
					return
				}
			}
			if name.IsExported() {
				pass.Reportf(name.Pos(), "exported %s has no comment", name.Name)
			}
		}
		for _, file := range pass.Files {
			if strings.HasSuffix(pass.Fset.Position(file.Package).Filename, "_test.go") {
				continue
			}
			for _, declaration := range file.Decls {
				switch d := declaration.(type) {
				case *ast.FuncDecl:
					if d.Recv == nil || receiver(d).IsExported() && !interfaceMethods[d.Name.Name] {
						check(d.Name, d.Doc)
					}
				case *ast.GenDecl:
					for _, spec := range d.Specs {
						switch s := spec.(type) {
						case *ast.TypeSpec:
							check(s.Name, d.Doc, s.Doc)
						case *ast.ValueSpec:
							for _, name := range s.Names {
								check(name, d.Doc, s.Doc, s.Comment)
							}
						}
					}
				}
			}
		}
		return nil, nil
	},
}

// interfaceMethods are documented where their interface is.
var interfaceMethods = map[string]bool{
	"Error": true, "Unwrap": true, "String": true, "Read": true, "Write": true, "ServeHTTP": true,
	"Len": true, "Less": true, "Swap": true,
}

// receiver is the name of the type of a method.
func receiver(method *ast.FuncDecl) *ast.Ident {
	for typ := method.Recv.List[0].Type; ; {
		switch t := typ.(type) {
		case *ast.Ident:
			return t
		case *ast.StarExpr:
			typ = t.X
		case *ast.IndexExpr:
			typ = t.X
		case *ast.IndexListExpr:
			typ = t.X
		case *ast.ParenExpr:
			typ = t.X
		default:
			return ast.NewIdent("_")
		}
	}
}

// nameOf is what a package is called where it is imported.
var nameOf = map[string]string{
	"k8s.io/api/core/v1":                   "corev1",
	"k8s.io/api/apps/v1":                   "appsv1",
	"k8s.io/apimachinery/pkg/apis/meta/v1": "metav1",
	"k8s.io/apimachinery/pkg/api/errors":   "apierrors",
	"sigs.k8s.io/controller-runtime":       "ctrl",
}

// importNames reports imports of Kubernetes' packages under another name than everywhere else.
var importNames = &analysis.Analyzer{
	Name: "importnames",
	Doc:  "report imports under another name than everywhere else",
	Run: func(pass *analysis.Pass) (any, error) {
		for _, file := range pass.Files {
			for _, spec := range file.Imports {
				imported, err := strconv.Unquote(spec.Path.Value)
				if err != nil {
					return nil, err
				}
				want := nameOf[imported]
				if want == "" {
					continue
				}
				name := path.Base(imported)
				if spec.Name != nil {
					name = spec.Name.Name
				}
				if name != want && name != "_" {
					pass.Reportf(spec.Pos(), "import %s as %s, as everywhere", imported, want)
				}
			}
		}
		return nil, nil
	},
}
