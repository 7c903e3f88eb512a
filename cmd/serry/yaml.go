package main

import (
	"bufio"
	"bytes"
	"encoding/json"
	"fmt"
	"io"
	"regexp"
)

// writeYAML prints a JSON document as YAML, with the fields in the same order. It goes from token to
// token and keeps none, so that a status of 10,000 tasks takes little longer than its JSON.
func writeYAML(w io.Writer, document []byte) error {
	d := json.NewDecoder(bytes.NewReader(document))
	d.UseNumber()
	y := &yamlWriter{Writer: bufio.NewWriter(w), tokens: d}
	if err := y.value(0, atTop); err != nil {
		return err
	}
	return y.Flush()
}

type yamlWriter struct {
	*bufio.Writer
	tokens *json.Decoder
}

// A yamlPlace is where a value stands.
type yamlPlace int

const (
	atTop yamlPlace = iota
	afterKey
	afterDash
)

// value writes the next value. Lines that it begins have that indent.
func (y *yamlWriter) value(indent int, at yamlPlace) error {
	token, err := y.tokens.Token()
	if err != nil {
		return err
	}
	begin, composed := token.(json.Delim)
	switch {
	case !composed:
		y.inline(at, scalar(token))
		return nil
	case y.tokens.More():
		return y.block(begin, indent, at)
	case begin == '{':
		y.inline(at, "{}")
	default:
		y.inline(at, "[]")
	}
	_, err = y.tokens.Token() // the end of what is empty
	return err
}

// inline writes a value that ends its line.
func (y *yamlWriter) inline(at yamlPlace, text string) {
	if at != atTop {
		y.WriteByte(' ')
	}
	y.WriteString(text)
	y.WriteByte('\n')
}

// block writes the fields of an object or the items of a list. The first one follows a dash on the
// same line.
func (y *yamlWriter) block(begin json.Delim, indent int, at yamlPlace) error {
	switch at {
	case afterKey:
		y.WriteByte('\n')
	case afterDash:
		y.WriteByte(' ')
	}
	for n := 0; y.tokens.More(); n++ {
		if n > 0 || at != afterDash {
			for range indent {
				y.WriteString("  ")
			}
		}
		if err := y.entry(begin, indent); err != nil {
			return err
		}
	}
	_, err := y.tokens.Token()
	return err
}

func (y *yamlWriter) entry(begin json.Delim, indent int) error {
	if begin == '[' {
		y.WriteByte('-')
		return y.value(indent+1, afterDash)
	}
	key, err := y.tokens.Token()
	if err != nil {
		return err
	}
	y.WriteString(scalar(key))
	y.WriteByte(':')
	return y.value(indent+1, afterKey)
}

// bare are texts that YAML reads as themselves without quotes.
var bare = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_/-]*$`)

// taken are words that YAML readers take for something else than text.
var taken = regexp.MustCompile(`^(?i:true|false|null|yes|no|on|off|y|n)$`)

func scalar(token json.Token) string {
	text, ok := token.(string)
	switch {
	case token == nil:
		return "null"
	case !ok:
		return fmt.Sprint(token)
	case bare.MatchString(text) && !taken.MatchString(text):
		return text
	}
	quoted, _ := json.Marshal(text) // a string always can be, and JSON is YAML
	return string(quoted)
}
