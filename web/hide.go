package web

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/serry-dev/serry/diagnose"
)

// What may be hidden, beside patterns of keys.
const (
	hideValues = "values"
	hideLogs   = "logs"
)

// secretKey are keys whose values are not shown, whatever the user hides besides (D-WEB-18).
var secretKey = regexp.MustCompile(`(?i)secret|token|passw|credential`)

// A hiding says what the page does not show: values and lines of logs may hold secrets of the program.
type hiding struct {
	values, logs bool
	patterns     []string // of keys, in the words of package path
}

// newHiding reads what a user wants hidden: values, logs, or patterns of keys.
func newHiding(words []string) (h hiding, err error) {
	for _, word := range words {
		switch _, bad := path.Match(word, ""); {
		case word == hideValues:
			h.values = true
		case word == hideLogs:
			h.logs = true
		case word == "" || bad != nil:
			return h, fmt.Errorf("hide %q: want %s, %s, or a pattern of keys such as ckpt/*", word, hideValues, hideLogs)
		default:
			h.patterns = append(h.patterns, word)
		}
	}
	return h, nil
}

// value says why the value of a key is not shown; empty: it is. A pattern hides also what lies below the keys that it matches. To the
// service "/a//b" and "a/b" are the same key (C-KV-1), so they are here, too.
func (h hiding) value(key string) string {
	switch {
	case h.values:
		return "values are hidden (--web-hide values)"
	case secretKey.MatchString(key):
		return "values of keys that are called so are not shown"
	}
	parts := partsOf(key)
	if h.logs && slices.Equal(parts, partsOf(diagnose.HangKey)) {
		return "it has lines of ranks, which are hidden (--web-hide logs)"
	}
	for _, p := range h.patterns {
		clean := strings.Join(partsOf(p), "/")
		for n := range parts {
			if ok, _ := path.Match(clean, strings.Join(parts[:n+1], "/")); ok { // it was checked at the start
				return "it is hidden (--web-hide " + p + ")"
			}
		}
	}
	return ""
}

// partsOf are the parts of a key between slashes, without those that are empty.
func partsOf(key string) []string {
	return strings.FieldsFunc(key, func(r rune) bool { return r == '/' })
}
