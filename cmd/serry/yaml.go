package main

import (
	"bytes"
	"encoding/json"
	"io"
	"strings"

	"github.com/serry-dev/serry/internal/harmless"
)

// writeYAML prints v as YAML, with the fields that its JSON has, in the same order. It walks once over
// the JSON, so that a status of 10,000 tasks takes no longer in one form than in the other.
func writeYAML(w io.Writer, v any) error {
	var document bytes.Buffer
	e := json.NewEncoder(&document)
	e.SetEscapeHTML(false)
	if err := e.Encode(v); err != nil {
		return err
	}
	y := &yamlWriter{in: harmless.JSON(document.Bytes())}
	y.value(0, atTop)
	_, err := w.Write(y.out)
	return err
}

// A yamlWriter turns JSON without spaces, as package json writes it, into YAML.
type yamlWriter struct {
	in  []byte // what is left of it
	out []byte
}

// A yamlPlace is where a value stands.
type yamlPlace int

const (
	atTop yamlPlace = iota
	afterKey
	afterDash
)

// value writes the next value. Lines that it begins have that indent.
func (y *yamlWriter) value(indent int, at yamlPlace) {
	begin := y.in[0]
	switch {
	case begin != '{' && begin != '[':
		y.inline(at, y.scalar())
	case y.in[1] == begin+2: // } or ]
		y.inline(at, y.take(2))
	default:
		y.block(begin, indent, at)
	}
}

// take returns the next n bytes.
func (y *yamlWriter) take(n int) []byte {
	taken := y.in[:n]
	y.in = y.in[n:]
	return taken
}

// inline writes a value that ends its line.
func (y *yamlWriter) inline(at yamlPlace, text []byte) {
	if at != atTop {
		y.out = append(y.out, ' ')
	}
	y.out = append(append(y.out, text...), '\n')
}

// block writes the fields of an object or the items of a list. The first one follows a dash on the
// same line.
func (y *yamlWriter) block(begin byte, indent int, at yamlPlace) {
	switch at {
	case afterKey:
		y.out = append(y.out, '\n')
	case afterDash:
		y.out = append(y.out, ' ')
	}
	for n := 0; y.take(1)[0] != begin+2; n++ { // the begin, a comma, or the end
		if n > 0 || at != afterDash {
			for range indent {
				y.out = append(y.out, "  "...)
			}
		}
		if begin == '[' {
			y.out = append(y.out, '-')
			y.value(indent+1, afterDash)
			continue
		}
		y.out = append(append(y.out, y.scalar()...), ':')
		y.take(1) // the colon
		y.value(indent+1, afterKey)
	}
}

// scalar takes a text, a number or a word. A text keeps its quotes where it needs them: JSON is YAML.
func (y *yamlWriter) scalar() []byte {
	if y.in[0] != '"' {
		return y.take(bytes.IndexAny(y.in, ",]}\n"))
	}
	n := 1
	for ; y.in[n] != '"'; n++ {
		if y.in[n] == '\\' {
			n++
		}
	}
	text := y.take(n + 1)
	if inner := text[1:n]; isBare(inner) {
		return inner
	}
	return text
}

// isBare says whether YAML reads a text as itself without quotes.
func isBare(text []byte) bool {
	for i, c := range text {
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c == '_':
		case i > 0 && (c >= '0' && c <= '9' || c == '/' || c == '-'):
		default:
			return false
		}
	}
	switch len(text) {
	case 0:
		return false
	case 1, 2, 3, 4, 5: // words that YAML readers take for something else
		switch strings.ToLower(string(text)) {
		case "true", "false", "null", "yes", "no", "on", "off", "y", "n":
			return false
		}
	}
	return true
}
