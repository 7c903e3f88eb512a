// Package harmless makes texts that other programs chose safe to print: names of keys, hosts and ranks, errors and frames
// of stacks may hold characters that steer a terminal or change the direction of text (SEC-112). [Line] is for texts,
// [JSON] for documents.
package harmless

import (
	"bytes"
	"fmt"
	"slices"
	"strings"
	"unicode"
	"unicode/utf8"
)

// Line makes a text one line of printable characters.
func Line(s string) string {
	if isASCII(s) {
		return s
	}
	return strings.Map(func(r rune) rune {
		if !unicode.IsPrint(r) || r == utf8.RuneError {
			return '?'
		}
		return r
	}, s)
}

// isASCII says whether a text has only printable ASCII: most have, and tables have ten thousand rows.
func isASCII(s string) bool {
	for i := range len(s) {
		if s[i] < ' ' || s[i] > '~' {
			return false
		}
	}
	return true
}

// JSON writes the characters of a document in JSON that steer a terminal, or the direction of text on it, as escapes.
// Package json does so for those below U+0020.
func JSON(document []byte) []byte {
	if !slices.ContainsFunc(document, func(b byte) bool { return b >= 0x7f }) || !bytes.ContainsFunc(document, Steers) {
		return document
	}
	var out []byte
	for _, r := range string(document) {
		if Steers(r) {
			out = fmt.Appendf(out, `\u%04x`, r)
		} else {
			out = utf8.AppendRune(out, r)
		}
	}
	return out
}

// Steers says whether a character above U+0020 is a control or changes the direction of text.
func Steers(r rune) bool {
	return r >= 0x7f && (r <= 0x9f || unicode.Is(unicode.Bidi_Control, r))
}
