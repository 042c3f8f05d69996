package main

import (
	"context"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"golang.org/x/tools/go/packages"
)

// guarded are the packages that implement the guarantees. The random mutants are
// generated from their code.
var guarded = []string{
	"./functions/redrive", "./functions/token", "./functions/webhook",
	"./shared/bus", "./shared/claimcheck", "./shared/clientcert", "./shared/settings", "./shared/intake",
	"./shared/keys",
	"./shared/ledger", "./shared/parking", "./shared/payment", "./shared/signature", "./shared/token",
}

// source is a file from which mutants are generated, with the types of its package.
type source struct {
	pkg  *packages.Package
	file *ast.File
	path string // from the top of the module, with slashes
	text []byte
}

// load returns every file of the guarded packages, in a stable order.
func load(ctx context.Context, root string) ([]source, error) {
	loaded, err := packages.Load(&packages.Config{
		Context: ctx,
		Dir:     root,
		Mode: packages.NeedName | packages.NeedFiles | packages.NeedCompiledGoFiles | packages.NeedImports |
			packages.NeedTypes | packages.NeedTypesInfo | packages.NeedSyntax,
	}, guarded...)
	if err != nil {
		return nil, err
	}
	var sources []source
	for _, pkg := range loaded {
		for _, problem := range pkg.Errors {
			return nil, problem
		}
		for i, file := range pkg.Syntax {
			path := pkg.CompiledGoFiles[i]
			text, err := os.ReadFile(path)
			if err != nil {
				return nil, err
			}
			relative, err := filepath.Rel(root, path)
			if err != nil {
				return nil, err
			}
			sources = append(sources, source{pkg, file, filepath.ToSlash(relative), text})
		}
	}
	slices.SortFunc(sources, func(a, b source) int { return strings.Compare(a.path, b.path) })
	return sources, nil
}

// generate returns every mutant of the sources that compiles. The order is
// stable, so that a seed chooses the same mutants on every machine.
func generate(ctx context.Context, sources []source) ([]candidate, error) {
	var all []candidate
	for _, s := range sources {
		seen := map[string]int{}
		for _, m := range s.mutants() {
			if err := ctx.Err(); err != nil {
				return nil, err
			}
			// The name has no line number, so that changes above do not change it.
			seen[m.name]++
			if n := seen[m.name]; n > 1 {
				m.name += fmt.Sprintf(" (%d)", n)
			}
			all = append(all, m)
		}
	}
	return all, nil
}

// choose returns n of the mutants that are not known to be equivalent and that
// compile, chosen by the seed. With n < 0 it returns all of them.
func choose(ctx context.Context, sources []source, all []candidate, n int, seed uint64) ([]candidate, error) {
	byPath := map[string]source{}
	for _, s := range sources {
		byPath[s.path] = s
	}
	shuffled := slices.Clone(all)
	random := rand.New(rand.NewPCG(seed, 0))
	random.Shuffle(len(shuffled), func(i, j int) { shuffled[i], shuffled[j] = shuffled[j], shuffled[i] })
	var chosen []candidate
	for _, m := range shuffled {
		if err := ctx.Err(); err != nil {
			return nil, err
		}
		if n >= 0 && len(chosen) == n {
			break
		}
		if _, known := equivalent[m.name]; known || !byPath[m.file].compiles(m) {
			continue
		}
		chosen = append(chosen, m)
	}
	return chosen, nil
}

// compiles reports whether the package of s type-checks with m in it. Tests need not
// find what the compiler rejects.
func (s source) compiles(m candidate) bool {
	text := slices.Concat(s.text[:m.at], []byte(m.new), s.text[m.at+len(m.old):])
	fset := token.NewFileSet()
	var files []*ast.File
	for _, path := range s.pkg.CompiledGoFiles {
		source := any(nil)
		if strings.HasSuffix(filepath.ToSlash(path), "/"+s.path) {
			source = text
		}
		file, err := parser.ParseFile(fset, path, source, parser.SkipObjectResolution)
		if err != nil {
			return false
		}
		files = append(files, file)
	}
	config := types.Config{Importer: importerOf(s.pkg), GoVersion: s.pkg.Types.GoVersion(), Sizes: s.pkg.TypesSizes}
	_, err := config.Check(s.pkg.PkgPath, fset, files, nil)
	return err == nil
}

// importerOf returns an importer of what the package imports.
func importerOf(pkg *packages.Package) types.Importer {
	return importerFunc(func(path string) (*types.Package, error) {
		if path == "unsafe" {
			return types.Unsafe, nil
		}
		if p := pkg.Imports[path]; p != nil && p.Types != nil {
			return p.Types, nil
		}
		return nil, errors.New("not imported")
	})
}

type importerFunc func(string) (*types.Package, error)

func (f importerFunc) Import(path string) (*types.Package, error) { return f(path) }

// mutants returns every mutant of s, whether it compiles or not, in the order of
// the file.
func (s source) mutants() (all []candidate) {
	function := ""
	add := func(kind string, node ast.Node, replacement string) {
		start, end := s.offset(node.Pos()), s.offset(node.End())
		old := string(s.text[start:end])
		name := fmt.Sprintf("%s %s: %s: %s", s.path, function, kind, oneLine(old))
		all = append(all, candidate{mutant{name: name, file: s.path, old: old, new: replacement}, start})
	}
	for _, declaration := range s.file.Decls {
		function = "package level"
		if f, ok := declaration.(*ast.FuncDecl); ok {
			function = f.Name.Name
			if function == "Error" && f.Recv != nil {
				continue // it formats an error
			}
		}
		without := map[ast.Node]bool{}
		ast.Inspect(declaration, func(node ast.Node) bool {
			if node == nil || without[node] || s.onlyReports(node) || s.onlySpeed(node) {
				return false
			}
			for _, unread := range s.unread(node) {
				without[unread] = true
			}
			s.visit(node, add)
			return true
		})
	}
	return all
}

func (s source) visit(node ast.Node, add func(kind string, node ast.Node, replacement string)) {
	switch n := node.(type) {
	case *ast.IfStmt:
		s.condition(n.Cond, add)
	case *ast.ForStmt:
		if n.Cond != nil {
			add("loop never runs", n.Cond, "false && ("+s.textOf(n.Cond)+")")
		}
	case *ast.CaseClause:
		for _, e := range n.List {
			if t := s.pkg.TypesInfo.TypeOf(e); t != nil && isBool(t) {
				s.condition(e, add)
			}
		}
	case *ast.BinaryExpr:
		s.operator(n, add)
	case *ast.ExprStmt, *ast.IncDecStmt, *ast.BranchStmt:
		add("removed", n, "if false { "+s.textOf(n)+" }")
		if b, ok := n.(*ast.BranchStmt); ok && b.Tok == token.CONTINUE {
			add("break for continue", n, "break")
		}
	case *ast.AssignStmt:
		if n.Tok != token.DEFINE {
			add("removed", n, "if false { "+s.textOf(n)+" }")
		}
	case *ast.ReturnStmt:
		add("removed", n, "if false { "+s.textOf(n)+" }")
		for _, result := range n.Results {
			if t := s.pkg.TypesInfo.TypeOf(result); t != nil && isError(t) {
				add("nil for an error", result, "nil")
			}
		}
	case *ast.CallExpr:
		for i := 1; i < len(n.Args); i++ {
			a, b := n.Args[i-1], n.Args[i]
			if s.swappable(n, a, b) {
				both := &span{a.Pos(), b.End()}
				between := string(s.text[s.offset(a.End()):s.offset(b.Pos())])
				add("swapped arguments", both, s.textOf(b)+between+s.textOf(a))
			}
		}
	case *ast.CompositeLit:
		if t := s.pkg.TypesInfo.TypeOf(n); t != nil {
			if _, ok := t.Underlying().(*types.Struct); ok {
				for _, element := range n.Elts {
					if pair, ok := element.(*ast.KeyValueExpr); ok {
						s.zeroed(pair, add)
					}
				}
			}
		}
	case *ast.BasicLit:
		s.constant(n, add)
	case *ast.Ident:
		if constant, ok := s.pkg.TypesInfo.Uses[n].(*types.Const); ok && constant.Pkg() == nil {
			switch n.Name {
			case "true":
				add("constant", n, "false")
			case "false":
				add("constant", n, "true")
			}
		}
	}
}

func (s source) condition(e ast.Expr, add func(string, ast.Node, string)) {
	add("negated", e, "!("+s.textOf(e)+")")
	add("never true", e, "false && ("+s.textOf(e)+")")
	add("always true", e, "true || ("+s.textOf(e)+")")
}

// boundaries are the operators that differ from each other in one value.
var boundaries = map[token.Token][]token.Token{
	token.LSS: {token.LEQ}, token.LEQ: {token.LSS}, token.GTR: {token.GEQ}, token.GEQ: {token.GTR},
	token.EQL: {token.NEQ}, token.NEQ: {token.EQL}, token.LAND: {token.LOR}, token.LOR: {token.LAND},
	token.ADD: {token.SUB}, token.SUB: {token.ADD}, token.MUL: {token.QUO}, token.QUO: {token.MUL},
}

func (s source) operator(n *ast.BinaryExpr, add func(string, ast.Node, string)) {
	for _, other := range boundaries[n.Op] {
		add(n.Op.String()+" is "+other.String(), n, s.textOf(n.X)+" "+other.String()+" "+s.textOf(n.Y))
	}
	if n.Op == token.LAND || n.Op == token.LOR {
		add("left side alone", n, s.textOf(n.X))
		add("right side alone", n, s.textOf(n.Y))
	}
}

func (s source) constant(n *ast.BasicLit, add func(string, ast.Node, string)) {
	if n.Kind != token.INT {
		return
	}
	value, err := strconv.ParseInt(n.Value, 0, 64)
	if err != nil {
		return
	}
	if t := s.pkg.TypesInfo.TypeOf(n); t != nil && t.String() == "time.Duration" {
		// An off-by-one constant is rarely a mistake; another unit often is. Zero has no
		// unit.
		if value != 0 {
			add("constant", n, strconv.FormatInt(value*60, 10))
		}
		return
	}
	add("constant", n, strconv.FormatInt(value+1, 10))
}

// zeroed removes a field of a struct literal: an option that is not passed on.
func (s source) zeroed(pair *ast.KeyValueExpr, add func(string, ast.Node, string)) {
	value := s.pkg.TypesInfo.TypeOf(pair.Value)
	if value == nil {
		return
	}
	zero := ""
	switch t := value.Underlying().(type) {
	case *types.Basic:
		switch {
		case t.Info()&types.IsBoolean != 0:
			zero = "false"
		case t.Info()&types.IsNumeric != 0:
			zero = "0"
		case t.Info()&types.IsString != 0:
			zero = `""`
		}
	case *types.Pointer, *types.Slice, *types.Map, *types.Interface, *types.Signature:
		zero = "nil"
	}
	if zero != "" && zero != s.textOf(pair.Value) {
		add("option is zero", pair, s.textOf(pair.Key)+": "+zero)
	}
}

func (s source) swappable(call *ast.CallExpr, a, b ast.Expr) bool {
	ta, tb := s.pkg.TypesInfo.TypeOf(a), s.pkg.TypesInfo.TypeOf(b)
	if ta == nil || tb == nil || !types.Identical(ta, tb) || s.textOf(a) == s.textOf(b) {
		return false
	}
	if f, ok := call.Fun.(*ast.Ident); ok && slices.Contains([]string{"min", "max", "append"}, f.Name) {
		return false // the order has no meaning, or only that of a list
	}
	if f, ok := call.Fun.(*ast.SelectorExpr); ok &&
		slices.Contains([]string{"Equal", "EqualFold", "Mul", "valid"}, f.Sel.Name) {
		return false // likewise
	}
	return !call.Ellipsis.IsValid()
}

// onlyReports reports whether a node only writes to the log, measures a duration or
// formats an error. A mutant of it does not change what happens to an event.
func (s source) onlyReports(node ast.Node) bool {
	switch n := node.(type) {
	case *ast.ImportSpec, *ast.TypeSpec:
		return true
	case *ast.CallExpr:
		text := s.textOf(n.Fun)
		for _, prefix := range []string{"slog.", "telemetry.", "h.log.", "fmt.Fprint", "log."} {
			if strings.HasPrefix(text, prefix) {
				return true
			}
		}
	case *ast.ExprStmt:
		return s.onlyReports(n.X)
	case *ast.AssignStmt:
		if len(n.Lhs) == 1 {
			left := s.textOf(n.Lhs[0])
			return left == "level" || left == "attrs" || strings.Contains(left, "Steps.") ||
				strings.Contains(left, ".publishing") || strings.Contains(left, ".marking")
		}
	}
	return false
}

// onlySpeed reports whether a node only sets how many idle connections a client
// keeps.
func (s source) onlySpeed(node ast.Node) bool {
	n, ok := node.(*ast.AssignStmt)
	return ok && strings.HasPrefix(s.textOf(n.Lhs[0]), "t.MaxIdleConns")
}

// unread returns the parts of a node without effect: booleans and numbers that are
// returned together with an error, which callers do not read, and the capacity in a
// call of make.
func (s source) unread(node ast.Node) (parts []ast.Node) {
	switch n := node.(type) {
	case *ast.ReturnStmt:
		if last := len(n.Results) - 1; last > 0 && s.makesError(n.Results[last]) {
			return literals(n.Results[:last])
		}
	case *ast.IfStmt:
		// if err != nil { return 0, err }
		cond, ok := n.Cond.(*ast.BinaryExpr)
		if !ok || cond.Op != token.NEQ || s.textOf(cond.Y) != "nil" {
			return nil
		}
		for _, statement := range n.Body.List {
			if r, ok := statement.(*ast.ReturnStmt); ok {
				if last := len(r.Results) - 1; last > 0 && s.textOf(r.Results[last]) == s.textOf(cond.X) {
					parts = append(parts, literals(r.Results[:last])...)
				}
			}
		}
	case *ast.CallExpr:
		if s.textOf(n.Fun) != "make" {
			return nil
		}
		_, isMap := s.pkg.TypesInfo.TypeOf(n.Args[0]).Underlying().(*types.Map)
		for i, arg := range n.Args {
			if i == 2 || i == 1 && isMap {
				parts = append(parts, arg)
			}
		}
	}
	return parts
}

// makesError reports whether an expression is a new error.
func (s source) makesError(e ast.Expr) bool {
	call, ok := e.(*ast.CallExpr)
	return ok && slices.Contains([]string{"fmt.Errorf", "errors.New"}, s.textOf(call.Fun))
}

func literals(results []ast.Expr) (parts []ast.Node) {
	for _, result := range results {
		switch result.(type) {
		case *ast.Ident, *ast.BasicLit:
			parts = append(parts, result)
		}
	}
	return parts
}

func (s source) offset(p token.Pos) int { return s.pkg.Fset.Position(p).Offset }

func (s source) textOf(n ast.Node) string { return string(s.text[s.offset(n.Pos()):s.offset(n.End())]) }

// span is a part of a file.
type span struct{ from, to token.Pos }

func (p *span) Pos() token.Pos { return p.from }
func (p *span) End() token.Pos { return p.to }

func isBool(t types.Type) bool {
	b, ok := t.Underlying().(*types.Basic)
	return ok && b.Info()&types.IsBoolean != 0
}

func isError(t types.Type) bool {
	return types.Identical(t, types.Universe.Lookup("error").Type())
}

// oneLine returns the first line of a text, with white space folded.
func oneLine(text string) string {
	first, _, more := strings.Cut(text, "\n")
	first = strings.Join(strings.Fields(first), " ")
	if more {
		first += " ..."
	}
	return first
}
