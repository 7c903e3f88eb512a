package form

import (
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/serry-dev/serry/mesh"
)

// ParseMesh reads what [Mesh.String] writes, and what JAX prints for a mesh.
// What it does not know, as a later version may write it, is an error.
func ParseMesh(text string) (*mesh.Mesh, error) {
	return parseWhole(text, (*parser).mesh)
}

// ParseSpec reads what [Spec.String] writes, and what JAX prints.
func ParseSpec(text string) (mesh.Spec, error) {
	return parseWhole(text, (*parser).spec)
}

// ParseSharding reads what [Sharding.String] writes, and what JAX prints.
func ParseSharding(text string) (*mesh.Sharding, error) {
	return parseWhole(text, (*parser).sharding)
}

func parseWhole[T any](text string, read func(*parser) T) (T, error) {
	var zero T
	if len(text) > maxText {
		return zero, errorf(mesh.ErrFormat, "text of %d bytes, at most %d are read", len(text), maxText)
	}
	p := &parser{text: text}
	out := read(p)
	if p.space(); p.pos < len(text) {
		p.want("the end")
	}
	if p.err != nil {
		return zero, p.err
	}
	return out, nil
}

// A parser reads one text form from left to right. It keeps its first error; what it reads after that means nothing.
type parser struct {
	text string
	pos  int
	err  error
}

// fail keeps the first error; nil is none.
func (p *parser) fail(err error) {
	if p.err == nil {
		p.err = err
	}
}

// want says what the text should have here.
func (p *parser) want(what string) {
	rest := p.text[p.pos:]
	if len(rest) > 20 {
		cut := 20
		for cut > 0 && !utf8.RuneStart(rest[cut]) {
			cut--
		}
		rest = rest[:cut] + "…"
	}
	if rest == "" {
		rest = "the end of the text"
	} else {
		rest = strconv.Quote(rest)
	}
	p.fail(errorf(mesh.ErrFormat, "at byte %d: want %s, got %s", p.pos, what, rest))
}

// wantAt is want for what began at an earlier byte.
func (p *parser) wantAt(start int, what string) {
	p.pos = start
	p.want(what)
}

func (p *parser) space() {
	for p.pos < len(p.text) && strings.IndexByte(" \t\n\r", p.text[p.pos]) >= 0 {
		p.pos++
	}
}

// next says whether one of some characters comes next.
func (p *parser) next(chars string) bool {
	p.space()
	return p.pos < len(p.text) && strings.IndexByte(chars, p.text[p.pos]) >= 0
}

// take consumes literal if it comes next.
func (p *parser) take(literal string) bool {
	p.space()
	if !strings.HasPrefix(p.text[p.pos:], literal) {
		return false
	}
	p.pos += len(literal)
	return true
}

func (p *parser) expect(literal string) {
	if !p.take(literal) {
		p.want(strconv.Quote(literal))
	}
}

func isWordRune(r rune) bool {
	return r == '_' || '0' <= r && r <= '9' || 'a' <= r && r <= 'z' || 'A' <= r && r <= 'Z'
}

// word reads letters, digits and underscores; it may be empty.
func (p *parser) word() string {
	p.space()
	start := p.pos
	for p.pos < len(p.text) && isWordRune(rune(p.text[p.pos])) {
		p.pos++
	}
	return p.text[start:p.pos]
}

func (p *parser) number() int {
	p.space()
	start := p.pos
	for p.pos < len(p.text) && '0' <= p.text[p.pos] && p.text[p.pos] <= '9' {
		p.pos++
	}
	n, err := strconv.ParseInt(p.text[start:p.pos], 10, 32)
	if err != nil {
		p.wantAt(start, "a number")
	}
	return int(n)
}

// name reads a name in single or double quotes.
func (p *parser) name() string {
	if !p.next(quotes) {
		p.want("a quoted name")
		return ""
	}
	start := p.pos
	end := p.text[p.pos]
	var out strings.Builder
	for p.pos++; p.pos < len(p.text); p.pos++ {
		c := p.text[p.pos]
		if c == end {
			p.pos++
			return out.String()
		}
		if c == '\\' {
			if p.pos++; p.pos >= len(p.text) || strings.IndexByte(`\'"`, p.text[p.pos]) < 0 {
				break
			}
			c = p.text[p.pos]
		}
		out.WriteByte(c)
	}
	p.wantAt(start, "a closed name")
	return ""
}

const quotes = `'"`

// list reads items between brackets, separated by commas; a trailing comma is
// fine.
func (p *parser) list(open, end string, item func()) {
	p.expect(open)
	for p.err == nil && !p.take(end) {
		item()
		if p.err != nil || p.take(",") {
			continue
		}
		if !p.take(end) {
			p.want(strconv.Quote(",") + " or " + strconv.Quote(end))
		}
		return
	}
}

// items is list for items that become a slice.
func items[T any](p *parser, open, end string, read func() T) (out []T) {
	p.list(open, end, func() { out = append(out, read()) })
	return out
}

func (p *parser) spec() mesh.Spec {
	var s mesh.Spec
	if !p.take("PartitionSpec") && !p.take("P") {
		p.want("P(…)")
	}
	p.list("(", ")", func() { p.specItem(&s) })
	if p.err == nil {
		p.fail(s.Check())
	}
	return s.Canonical()
}

func (p *parser) specItem(s *mesh.Spec) {
	p.space()
	start := p.pos
	switch word := p.word(); word {
	case "":
		s.Dims = append(s.Dims, p.dim())
	case "None":
		s.Dims = append(s.Dims, nil)
	case "UNCONSTRAINED":
		s.Dims = append(s.Dims, mesh.Dim{mesh.Unconstrained})
	case "unreduced":
		p.expect("=")
		s.Unreduced = items(p, "{", "}", p.name)
	case "reduced":
		p.expect("=")
		s.Reduced = items(p, "{", "}", p.name)
	case "unreduced_kind":
		p.expect("=")
		if s.Kind = mesh.Reduction(p.word()); s.Kind == "" {
			p.want("sum, max or min")
		}
	default:
		p.wantAt(start, "a spec entry this version knows")
	}
}

// dim reads a name or a tuple of names. A tuple within a tuple is refused
// (C-SPEC-3).
func (p *parser) dim() mesh.Dim {
	if p.pos < len(p.text) && p.text[p.pos] != '(' {
		return mesh.Dim{p.name()}
	}
	return items(p, "(", ")", func() string {
		if p.next("(") {
			p.want("a name: a tuple cannot contain a nested tuple")
		}
		return p.name()
	})
}

func (p *parser) sharding() *mesh.Sharding {
	p.expect("NamedSharding(mesh=")
	m := p.mesh()
	p.expect(", spec=")
	spec := p.spec()
	memory := ""
	if p.take(", memory_kind=") {
		if memory = p.word(); memory == "" {
			p.want("a memory kind")
		}
	}
	p.expect(")")
	if p.err != nil {
		return nil
	}
	s, err := m.Shard(spec)
	if err == nil {
		s, err = s.WithMemory(memory)
	}
	p.fail(err)
	return s
}
