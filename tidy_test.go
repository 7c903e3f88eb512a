package serry_test

import (
	"bytes"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"io/fs"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// The tests of this file hold the whole repository to the rules that a program can check. To change
// a rule, change it here in the same commit, and say why.

const module = "github.com/serry-dev/serry"

// layers says who may import whom: a package only what lies in a layer before its own, or in the
// folder of the same part. A folder stands for everything below it, unless that has a line itself.
var layers = [][]string{
	{".", "secure", "internal/crc32c", "internal/harmless", "internal/lockrank", "internal/pause", "internal/plant", "internal/processor", "internal/pystack", "internal/seldom", "wire/rpc", "wire/xlapb", "wire/tfpb", "wire/topopb", "wire/serrypb"}, // words, and words on the wire
	{"coord", "topo", "mesh", "goodput", "internal/schedule"}, // pure
	{"mesh/restore"}, // pure; plans over the blocks of mesh for the devices of topo, so it lies above both
	{"wire/conn", "internal/aside", "internal/rendezvous", "memory"}, // connections, for everything that speaks over one; the garbage of stores; meetings of goroutines; memory, whose types kernel knows
	{"detect", "wire", "store", "link", "internal/kernel"},
	{"server", "relay", "client", "preempt", "collective", "transfer"},
	{"diagnose"}, // pure; the launcher judges hangs by it
	{"checkpoint", "export", "launch", "node", "internal/lab/history", "internal/lab/stock"},
	{"web"}, // the page of a job; cmd serves it and asks the service for it, so it lies below cmd and knows no command
	{"cmd", "interop", "bench", "examples", "internal/lab", "internal/gen"},
}

// pure packages have neither clock nor I/O, no goroutine, lock or channel, and no randomness. Those
// that talk through an interface of theirs may hand a context on.
var pure = map[string]struct{ context bool }{
	"coord":                   {},
	"topo":                    {context: true},
	"mesh/restore":            {},
	"detect":                  {},
	"mesh":                    {},
	"mesh/form":               {},
	"diagnose":                {},
	"goodput":                 {},
	"export":                  {context: true},
	"internal/crc32c":         {},
	"internal/schedule":       {},
	"preempt/internal/pact":   {},
	"transfer/internal/match": {},
	"transfer/offer":          {},
}

// withoutClient has the parts that do not import client, although they lie above it: each says itself what it needs.
var withoutClient = []string{"diagnose"}

func TestTidy(t *testing.T) {
	r := parse(t)
	t.Run("layers", r.layers)
	t.Run("purity", r.purity)
	t.Run("package comments", r.packageComments)
	t.Run("comments", r.comments)
	t.Run("one transport", r.oneTransport)
	t.Run("no init", r.noInit)
	t.Run("no function without a caller", r.callers)
	t.Run("no assertion library", r.noAssertions)
	t.Run("no sleep", r.noSleep)
	t.Run("no fixed port", r.noFixedPort)
	t.Run("no place on one machine", noMachinePaths)
}

// A repository is every Go file of this module.
type repository struct {
	fset  *token.FileSet
	files []source
}

// A source is a parsed file of the repository.
type source struct {
	dir       string // of its package, "." for the root
	name      string // with dir
	file      *ast.File
	test      bool
	generated bool
}

func parse(t *testing.T) *repository {
	t.Helper()
	r := &repository{fset: token.NewFileSet()}
	walk(t, func(name string, d fs.DirEntry) error {
		if !strings.HasSuffix(name, ".go") {
			return nil
		}
		file, err := parser.ParseFile(r.fset, name, nil, parser.ParseComments|parser.SkipObjectResolution)
		if err != nil {
			return err
		}
		r.files = append(r.files, source{
			dir: path.Dir(name), name: name, file: file,
			test: strings.HasSuffix(name, "_test.go"), generated: ast.IsGenerated(file),
		})
		return nil
	})
	return r
}

// walk visits the files of this module, not those of hidden folders, build outputs and other modules.
func walk(t *testing.T, visit func(name string, d fs.DirEntry) error) {
	t.Helper()
	err := fs.WalkDir(os.DirFS("."), ".", func(name string, d fs.DirEntry, err error) error {
		if err != nil || name == "." {
			return err
		}
		if name == ".git" && !d.IsDir() {
			return nil // of a second working tree: it says where the first one is
		}
		if !d.IsDir() {
			return visit(name, d)
		}
		_, mod := os.Stat(filepath.Join(name, "go.mod"))
		if strings.HasPrefix(d.Name(), ".") || name == "bin" || name == "out" || mod == nil {
			return fs.SkipDir
		}
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
}

// imports lists what a file imports, with packages of this module as folders.
func imports(f *ast.File) (own, other []string) {
	for _, spec := range f.Imports {
		p, _ := strconv.Unquote(spec.Path.Value)
		switch rest, ok := strings.CutPrefix(p, module); {
		case ok && rest == "":
			own = append(own, ".")
		case ok && rest[0] == '/':
			own = append(own, rest[1:])
		default:
			other = append(other, p)
		}
	}
	return own, other
}

// layer finds the number of a package's layer and the line it is there for.
func layer(dir string) (n int, part string) {
	for part := dir; ; part = path.Dir(part) {
		for n, parts := range layers {
			if slices.Contains(parts, part) && (part != "." || dir == ".") {
				return n, part
			}
		}
		if part == "." {
			return -1, ""
		}
	}
}

func (r *repository) layers(t *testing.T) {
	for _, s := range r.files {
		n, part := layer(s.dir)
		if n < 0 {
			t.Errorf("%s: package %s has no layer; give it one in tidy_test.go", s.name, s.dir)
			continue
		}
		if s.test {
			continue
		}
		own, _ := imports(s.file)
		for _, dir := range own {
			m, other := layer(dir)
			if m > n || m == n && other != part {
				t.Errorf("%s: %s (layer %d) imports %s (layer %d)", s.name, s.dir, n, dir, m)
			}
			if dir == "internal/lab" {
				t.Errorf("%s: only tests import internal/lab", s.name)
			}
			if dir == "client" && slices.Contains(withoutClient, part) {
				t.Errorf("%s: %s states what it needs of client itself", s.name, s.dir)
			}
		}
	}
}

// impure are imports by which the world gets in.
var impure = []string{
	"sync", "sync/atomic", "math/rand", "math/rand/v2", "crypto/rand", "os", "os/exec", "os/signal", "net", "net/http",
	"syscall", "log", "log/slog", "runtime", "runtime/debug", "io/fs", "path/filepath", "testing",
	"golang.org/x/sys/unix", "golang.org/x/sync/errgroup", "google.golang.org/grpc",
}

// clocks are what package time has besides durations.
var clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "Tick", "NewTimer", "NewTicker"}

func (r *repository) purity(t *testing.T) {
	for _, s := range r.files {
		rules, ok := pure[s.dir]
		if !ok || s.test {
			continue
		}
		_, other := imports(s.file)
		for _, p := range other {
			if slices.Contains(impure, p) || p == "context" && !rules.context {
				t.Errorf("%s: %s is pure and does not import %s", s.name, s.dir, p)
			}
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			what := ""
			switch n := n.(type) {
			case *ast.GoStmt:
				what = "goroutine"
			case *ast.ChanType:
				what = "channel"
			case *ast.SelectStmt:
				what = "select"
			case *ast.SelectorExpr:
				if x, ok := n.X.(*ast.Ident); ok && x.Name == "time" && slices.Contains(clocks, n.Sel.Name) {
					what = "time." + n.Sel.Name
				}
			}
			if what != "" {
				t.Errorf("%s: %s is pure and has no %s", r.fset.Position(n.Pos()), s.dir, what)
			}
			return true
		})
	}
}

// oneTransport holds the product to package front: of grpc-go it has codes and statuses, which are words.
// Tests, benchmarks and generated code may have more: grpc-go is what tests compare with.
func (r *repository) oneTransport(t *testing.T) {
	words := []string{"google.golang.org/grpc/codes", "google.golang.org/grpc/status"}
	for _, s := range r.files {
		if s.test || s.generated || strings.HasPrefix(s.dir, "bench") || strings.HasPrefix(s.dir, "internal/lab") {
			continue
		}
		_, other := imports(s.file)
		for _, p := range other {
			if strings.HasPrefix(p, "google.golang.org/grpc") && !slices.Contains(words, p) {
				t.Errorf("%s: %s imports %s; the product's transport is wire/front", s.name, s.dir, p)
			}
		}
	}
}

func (r *repository) packageComments(t *testing.T) {
	found := make(map[string][]string)
	for _, s := range r.files {
		if s.test {
			continue
		}
		if _, ok := found[s.dir]; !ok {
			found[s.dir] = nil
		}
		if s.file.Doc != nil && !s.generated {
			found[s.dir] = append(found[s.dir], s.name)
		}
	}
	for dir, files := range found {
		if len(files) != 1 {
			t.Errorf("package %s has %d package comments %q; want one", dir, len(files), files)
		}
	}
}

func (r *repository) comments(t *testing.T) {
	for _, s := range r.files {
		if s.test || s.generated {
			continue
		}
		for _, decl := range s.file.Decls {
			for _, name := range uncommented(decl) {
				t.Errorf("%s: %s is exported and has no comment", r.fset.Position(name.Pos()), name.Name)
			}
		}
	}
}

// uncommented finds the exported names of a declaration that nothing is said of.
func uncommented(decl ast.Decl) []*ast.Ident {
	var names []*ast.Ident
	switch d := decl.(type) {
	case *ast.FuncDecl:
		if d.Doc == nil && d.Name.IsExported() && exportedReceiver(d) && !slices.Contains(selfExplaining, d.Name.Name) {
			names = append(names, d.Name)
		}
	case *ast.GenDecl:
		for _, spec := range d.Specs {
			switch spec := spec.(type) {
			case *ast.TypeSpec:
				if spec.Name.IsExported() && spec.Doc == nil && d.Doc == nil {
					names = append(names, spec.Name)
				}
			case *ast.ValueSpec:
				for _, n := range spec.Names {
					if n.IsExported() && spec.Doc == nil && spec.Comment == nil && d.Doc == nil {
						names = append(names, n)
					}
				}
			}
		}
	}
	return names
}

// selfExplaining are methods that every Go programmer knows, because an interface of the standard
// library has them.
var selfExplaining = []string{"Error", "Unwrap", "String"}

func exportedReceiver(d *ast.FuncDecl) bool {
	if d.Recv == nil {
		return true
	}
	typ := d.Recv.List[0].Type
	for {
		switch x := typ.(type) {
		case *ast.StarExpr:
			typ = x.X
		case *ast.IndexExpr:
			typ = x.X
		case *ast.IndexListExpr:
			typ = x.X
		case *ast.Ident:
			return x.IsExported()
		default:
			return false
		}
	}
}

func (r *repository) noInit(t *testing.T) {
	for _, s := range r.files {
		for _, decl := range s.file.Decls {
			if f, ok := decl.(*ast.FuncDecl); ok && f.Recv == nil && f.Name.Name == "init" && !s.generated {
				t.Errorf("%s: no init; values are made where they are used", r.fset.Position(f.Pos()))
			}
		}
	}
}

// calledFor are the packages whose exported functions and methods must have a use outside the package: a
// caller, or a word in a document. They grow functions for completeness more easily than others.
var calledFor = []string{"mesh", "mesh/form", "mesh/restore", "topo", "export"}

// byInterface are methods that are called through an interface of the standard library.
var byInterface = []string{"Error", "Unwrap", "String", "MarshalJSON", "UnmarshalJSON"}

func (r *repository) callers(t *testing.T) {
	for _, dir := range calledFor {
		used := r.usedOutside(dir)
		for _, s := range r.files {
			if s.dir != dir || s.test {
				continue
			}
			for _, decl := range s.file.Decls {
				f, ok := decl.(*ast.FuncDecl)
				if !ok || !f.Name.IsExported() || !exportedReceiver(f) || slices.Contains(byInterface, f.Name.Name) {
					continue
				}
				if !used[f.Name.Name] && !documented(t, f.Name.Name) {
					t.Errorf("%s: %s has no caller outside %s and is in no document", r.fset.Position(f.Pos()), f.Name.Name, dir)
				}
			}
		}
	}
}

// usedOutside collects every name that follows a dot in the files of other packages.
func (r *repository) usedOutside(dir string) map[string]bool {
	used := make(map[string]bool)
	for _, s := range r.files {
		if s.dir == dir {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			if sel, ok := n.(*ast.SelectorExpr); ok {
				used[sel.Sel.Name] = true
			}
			return true
		})
	}
	return used
}

// documented says whether a document for users names a function, in the font of code.
func documented(t *testing.T, name string) bool {
	t.Helper()
	documents, err := filepath.Glob("docs/*.md")
	if err != nil {
		t.Fatal(err)
	}
	word := regexp.MustCompile("`[^`\n]*\\b" + name + "\\b[^`\n]*`")
	for _, document := range append(documents, "README.md") {
		text, err := os.ReadFile(document)
		if err != nil {
			t.Fatal(err)
		}
		if word.Match(text) {
			return true
		}
	}
	return false
}

// assertions are libraries that hide what a test compares.
var assertions = []string{"github.com/stretchr/testify", "github.com/onsi/", "gotest.tools/", "github.com/matryer/is", "github.com/frankban/quicktest", "gopkg.in/check"}

func (r *repository) noAssertions(t *testing.T) {
	for _, s := range r.files {
		_, other := imports(s.file)
		for _, p := range other {
			if slices.ContainsFunc(assertions, func(a string) bool { return strings.HasPrefix(p, a) }) {
				t.Errorf("%s: no assertion library: %s", s.name, p)
			}
		}
	}
}

// noSleep finds tests that wait for real time: time.Sleep in a file without synctest, or in a test
// itself. What is in a function of its own may be called in a bubble.
func (r *repository) noSleep(t *testing.T) {
	for _, s := range r.files {
		if !s.test {
			continue
		}
		_, other := imports(s.file)
		bubbles := slices.Contains(other, "testing/synctest")
		for _, decl := range s.file.Decls {
			f, ok := decl.(*ast.FuncDecl)
			if !ok || bubbles && !strings.HasPrefix(f.Name.Name, "Test") {
				continue
			}
			ast.Inspect(f, func(n ast.Node) bool {
				if call, ok := n.(*ast.CallExpr); ok && calleeName(call) == "time.Sleep" {
					t.Errorf("%s: no time.Sleep outside a synctest bubble", r.fset.Position(n.Pos()))
				}
				_, inner := n.(*ast.FuncLit)
				return !inner || !bubbles
			})
		}
	}
}

// fixedPort is an address that two tests cannot have at a time.
var fixedPort = regexp.MustCompile(`^[^/]*:[1-9][0-9]{1,4}$`)

func (r *repository) noFixedPort(t *testing.T) {
	for _, s := range r.files {
		if !s.test {
			continue
		}
		ast.Inspect(s.file, func(n ast.Node) bool {
			call, ok := n.(*ast.CallExpr)
			if !ok || !strings.Contains(calleeName(call), ".Listen") {
				return true
			}
			for _, arg := range call.Args {
				if lit, ok := arg.(*ast.BasicLit); ok && fixedPort.MatchString(strings.Trim(lit.Value, "`\"")) {
					t.Errorf("%s: no fixed port: %s", r.fset.Position(n.Pos()), lit.Value)
				}
			}
			return true
		})
	}
}

// calleeName is how a call names its function, if that is "x.y".
func calleeName(call *ast.CallExpr) string {
	sel, ok := call.Fun.(*ast.SelectorExpr)
	if !ok {
		return ""
	}
	x, ok := sel.X.(*ast.Ident)
	if !ok {
		return ""
	}
	return x.Name + "." + sel.Sel.Name
}

// machinePath is a place on somebody's machine. The repository means the same on every one.
var machinePath = regexp.MustCompile(`(^|[^A-Za-z0-9_.-])/(root|work|home|Users|private)/[A-Za-z0-9_.-]`)

func noMachinePaths(t *testing.T) {
	walk(t, func(name string, d fs.DirEntry) error {
		if name == "tidy_test.go" || !d.Type().IsRegular() {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil || bytes.IndexByte(text[:min(len(text), 8000)], 0) >= 0 {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			if m := machinePath.FindString(line); m != "" {
				t.Errorf("%s:%d: names a place on one machine: %s", name, i+1, m)
			}
		}
		return nil
	})
}

// The rules themselves see what they are meant to see.
func TestTidyRules(t *testing.T) {
	for dir, want := range map[string]string{"wire": "wire", "wire/front": "wire", "wire/rpc": "wire/rpc", "mesh/restore": "mesh/restore", ".": ".", "cmd/serry": "cmd", "misc/x": ""} {
		if _, part := layer(dir); part != want {
			t.Errorf("layer(%q) is that of %q; want %q", dir, part, want)
		}
	}
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nfunc F() {}\nfunc (t *T) M() {}\nfunc (t *u) N() {}\ntype T int\nconst (\n\tA = 1\n\tB = 2 // two\n)\n// C.\nvar C int\nfunc (T) Error() string", parser.ParseComments)
	if err != nil {
		t.Fatal(err)
	}
	var names []string
	for _, d := range f.Decls {
		for _, n := range uncommented(d) {
			names = append(names, n.Name)
		}
	}
	if got, want := fmt.Sprint(names), "[F M T A]"; got != want {
		t.Errorf("names without a comment: %s; want %s", got, want)
	}
	for text, want := range map[string]bool{"see /root/x": true, "unix:/run/serry.sock": false, "a/home/b": false, "\"/home/me\"": true} {
		if got := machinePath.MatchString(text); got != want {
			t.Errorf("machinePath of %q: %v; want %v", text, got, want)
		}
	}
}
