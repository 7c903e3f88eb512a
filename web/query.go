package web

import (
	"fmt"
	"net/url"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"
)

// A query is the values of an address that a handler knows, each once and not empty.
type query map[string]string

const (
	maxQuery = 4 << 10 // bytes
	maxRows  = 1000    // that one answer has
)

// readQuery reads the query of an address. Whatever a handler does not know is refused: an answer that ignored it would be taken for
// what was asked.
func readQuery(raw string, names ...string) (query, error) {
	if len(raw) > maxQuery {
		return nil, fmt.Errorf("a query of %d bytes; want %d at most", len(raw), maxQuery)
	}
	values, err := url.ParseQuery(raw)
	if err != nil {
		return nil, fmt.Errorf("the query cannot be read")
	}
	q := make(query)
	for name, all := range values {
		if !slices.Contains(names, name) {
			known := "it takes none"
			if len(names) > 0 {
				known = "known are " + strings.Join(names, ", ")
			}
			return nil, fmt.Errorf("unknown value %q; %s", shown(name), known)
		}
		if len(all) > 1 {
			return nil, fmt.Errorf("%s is given %d times", name, len(all))
		}
		if !utf8.ValidString(all[0]) {
			return nil, fmt.Errorf("%s is no text", name)
		}
		if all[0] != "" {
			q[name] = all[0]
		}
	}
	return q, nil
}

// shown cuts what a request says for an error about it.
func shown(s string) string {
	const most = 64
	if len(s) > most {
		return strings.ToValidUTF8(s[:most], "") + "..."
	}
	return s
}

// number reads a whole number of at least 0, at most most.
func (q query) number(name string, most, otherwise int) (int, error) {
	text, ok := q[name]
	if !ok {
		return otherwise, nil
	}
	n, err := strconv.Atoi(text)
	if err != nil || n < 0 || n > most {
		return 0, fmt.Errorf("%s is %q; want a number up to %d", name, shown(text), most)
	}
	return n, nil
}

// oneOf reads a value that is one of some.
func (q query) oneOf(name string, all []string) (string, error) {
	text, ok := q[name]
	if ok && !slices.Contains(all, text) {
		return "", fmt.Errorf("%s is %q; want one of %s", name, shown(text), strings.Join(all, ", "))
	}
	return text, nil
}
