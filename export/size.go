package export

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"math/big"
	"strconv"
	"unicode"
	"unicode/utf8"
)

// A Size is the extent of one dimension: a number, or an expression over symbols such as "b" or
// "2*b + 1", as JAX writes symbolic shapes. In JSON it is a number or a string.
type Size string

// sizeOf is the Size of a known number.
func sizeOf(n int) Size { return Size(strconv.Itoa(n)) }

// Number gives the extent if it is a known number.
func (s Size) Number() (int, bool) {
	n, err := strconv.Atoi(string(s))
	return n, err == nil && n >= 0
}

// MarshalJSON writes a number where the size is known.
func (s Size) MarshalJSON() ([]byte, error) {
	if n, ok := s.Number(); ok {
		return json.Marshal(n)
	}
	return json.Marshal(string(s))
}

// UnmarshalJSON reads a number or an expression.
func (s *Size) UnmarshalJSON(data []byte) error {
	var n int
	null := string(data) == "null" // which json would read as 0
	if !null && json.Unmarshal(data, &n) == nil {
		*s = sizeOf(n)
		return nil
	}
	var text string
	if err := json.Unmarshal(data, &text); err != nil || null {
		return errors.New("shape: want a number or an expression for each dimension")
	}
	*s = Size(text)
	return nil
}

// maxExpression bounds the text of a symbolic size; those of real programs have a few dozen bytes.
const maxExpression = 4096

// errOverflow is the error of arithmetic that does not fit an int.
var errOverflow = errors.New("the size is too large for this machine")

// An UnsetError says that an expression needs a symbol that has no value.
type UnsetError struct{ Symbol string }

func (e *UnsetError) Error() string { return fmt.Sprintf("symbol %q has no value", e.Symbol) }

// A term is the value of an expression, or why it has none.
type term struct {
	n   int
	err error
}

// parse reads the expression: its value with some symbols, and the symbols that it names. It fails only
// if the text is no expression.
func (s Size) parse(symbols map[string]int) (value term, names []string, err error) {
	if n, ok := s.Number(); ok {
		return term{n: n}, nil, nil
	}
	if len(s) > maxExpression {
		return term{}, nil, fmt.Errorf("an expression of %d bytes, at most %d are read", len(s), maxExpression)
	}
	p := &sizeParser{text: string(s), symbols: symbols}
	value = p.sum()
	if p.peek() != 0 {
		p.want("an operator or the end")
	}
	if p.err != nil {
		return term{}, nil, fmt.Errorf("size %q: %w", s, p.err)
	}
	return value, p.names, nil
}

// eval computes the size. It fails with an [UnsetError] if a symbol is missing.
func (s Size) eval(symbols map[string]int) (int, error) {
	value, _, err := s.parse(symbols)
	if err != nil {
		return 0, err
	}
	if value.err == nil && value.n < 0 {
		value.err = fmt.Errorf("it is %d", value.n)
	}
	if value.err != nil {
		return 0, fmt.Errorf("size %q: %w", s, value.err)
	}
	return value.n, nil
}

// symbol gives the name if the size is one symbol and nothing else.
func (s Size) symbol() (string, bool) {
	p := &sizeParser{text: string(s)}
	name := p.word()
	return name, name != "" && p.peek() == 0
}

// A sizeParser reads an expression by recursive descent:
//
//	sum     = product { ("+" | "-") product }
//	product = power { "*" power }
//	power   = atom [ "^" number ]
//	atom    = number | "-" atom | "(" sum ")" | symbol | function "(" sum { "," sum } ")"
type sizeParser struct {
	fault   // of the text
	text    string
	pos     int
	depth   int
	symbols map[string]int
	names   []string // symbols read so far
}

// maxDepth bounds how deeply an expression or a tree may be nested.
const maxDepth = 256

// peek returns the next byte that is not a space, or 0 at the end.
func (p *sizeParser) peek() byte {
	for p.pos < len(p.text) && p.text[p.pos] == ' ' {
		p.pos++
	}
	if p.pos == len(p.text) {
		return 0
	}
	return p.text[p.pos]
}

func (p *sizeParser) take(c byte) bool {
	if p.peek() != c {
		return false
	}
	p.pos++
	return true
}

// want says what the text should have here.
func (p *sizeParser) want(what string) { p.fail(fmt.Errorf("at byte %d: want %s", p.pos, what)) }

func (p *sizeParser) expect(c byte, what string) {
	if !p.take(c) {
		p.want(what)
	}
}

func (p *sizeParser) sum() term {
	left := p.product()
	for p.err == nil {
		switch {
		case p.take('+'):
			left = apply((*big.Int).Add, left, p.product())
		case p.take('-'):
			left = apply((*big.Int).Sub, left, p.product())
		default:
			return left
		}
	}
	return left
}

func (p *sizeParser) product() term {
	left := p.power()
	for p.err == nil && p.take('*') {
		left = apply((*big.Int).Mul, left, p.power())
	}
	return left
}

func (p *sizeParser) power() term {
	base := p.atom()
	if p.err != nil || !p.take('^') {
		return base
	}
	return apply(power, base, p.number())
}

func (p *sizeParser) atom() term {
	if p.depth++; p.depth > maxDepth {
		p.fail(fmt.Errorf("nested more than %d deep", maxDepth))
		return term{}
	}
	defer func() { p.depth-- }()
	switch c := p.peek(); {
	case c >= '0' && c <= '9':
		return p.number()
	case p.take('-'):
		return apply((*big.Int).Sub, term{}, p.power())
	case p.take('('):
		e := p.sum()
		p.expect(')', "a closing parenthesis")
		return e
	}
	name := p.word()
	if name == "" {
		p.want("a number, a symbol or a parenthesis")
		return term{}
	}
	if p.take('(') {
		return p.call(name)
	}
	p.names = append(p.names, name)
	if n, ok := p.symbols[name]; ok {
		return term{n: n}
	}
	return term{err: &UnsetError{name}}
}

func (p *sizeParser) number() term {
	p.peek()
	start := p.pos
	for p.pos < len(p.text) && p.text[p.pos] >= '0' && p.text[p.pos] <= '9' {
		p.pos++
	}
	n, err := strconv.Atoi(p.text[start:p.pos])
	if err != nil {
		p.want("a number")
	}
	return term{n: n}
}

// word reads the name of a symbol or function: an identifier of Python, whose letters need not be ASCII.
func (p *sizeParser) word() string {
	p.peek()
	start := p.pos
	for p.pos < len(p.text) {
		c, n := utf8.DecodeRuneInString(p.text[p.pos:])
		first := c == '_' || unicode.IsLetter(c)
		if !first && (p.pos == start || !unicode.IsDigit(c) && !unicode.IsMark(c)) {
			break
		}
		p.pos += n
	}
	return p.text[start:p.pos]
}

// An operation sets z to the result of an operation on a and b, and returns z; nil if there is none.
type operation func(z, a, b *big.Int) *big.Int

// functions are those of JAX's symbolic shapes. Divisions round down, as in Python.
var functions = map[string]operation{
	"floordiv": func(z, a, b *big.Int) *big.Int { q, _ := floorDivide(a, b); return q },
	"mod":      func(z, a, b *big.Int) *big.Int { _, r := floorDivide(a, b); return r },
	"max":      func(z, a, b *big.Int) *big.Int { return z.SetInt64(max(a.Int64(), b.Int64())) },
	"min":      func(z, a, b *big.Int) *big.Int { return z.SetInt64(min(a.Int64(), b.Int64())) },
}

func (p *sizeParser) call(name string) term {
	function, ok := functions[name]
	if !ok {
		p.fail(fmt.Errorf("unknown function %q", name))
		return term{}
	}
	left := p.sum()
	p.expect(',', "a comma")
	right := p.sum()
	p.expect(')', "a closing parenthesis")
	return apply(function, left, right)
}

func apply(o operation, left, right term) term {
	if err := cmp.Or(left.err, right.err); err != nil {
		return term{err: err}
	}
	z := o(new(big.Int), big.NewInt(int64(left.n)), big.NewInt(int64(right.n)))
	switch {
	case z == nil:
		return term{err: errors.New("division by zero")}
	case !z.IsInt64():
		return term{err: errOverflow}
	}
	return term{n: int(z.Int64())}
}

// power computes no more than 64 bits of what would not fit.
func power(z, a, b *big.Int) *big.Int {
	if a.CmpAbs(big.NewInt(1)) > 0 && b.Cmp(big.NewInt(64)) > 0 {
		return z.Lsh(big.NewInt(1), 64)
	}
	return z.Exp(a, b, nil)
}

// floorDivide gives nil for a division by zero.
func floorDivide(a, b *big.Int) (quotient, remainder *big.Int) {
	if b.Sign() == 0 {
		return nil, nil
	}
	q, r := new(big.Int).QuoRem(a, b, new(big.Int))
	if r.Sign() != 0 && r.Sign() != b.Sign() {
		q.Sub(q, big.NewInt(1))
		r.Add(r, b)
	}
	return q, r
}

// ShapeText writes a shape as JAX prints it, without the element type.
func ShapeText(shape []Size) string {
	return "[" + joined(shape, func(s Size) string { return string(s) }) + "]"
}
