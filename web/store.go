package web

import (
	"cmp"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"net/http"
	"slices"
	"strings"
	"time"
	"unicode"
	"unicode/utf8"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// Keys are the keys that the ranks of a job share, as commands read them. Its methods may be called at the same time.
type Keys interface {
	// Sizes lists the keys below a directory; empty: all.
	Sizes(ctx context.Context, dir string) ([]coord.KeySize, error)

	// Value is that of a key. Its error is [serry.ErrNotFound] where there is none.
	Value(ctx context.Context, key string) ([]byte, error)
}

const (
	keysPause    = time.Second // between two listings
	keysPatience = 5 * time.Second
	valueShown   = 64 << 10 // bytes of a value
)

// A KeyList is serry kv ls -o json, in pages, with directories drawn together where that is asked for.
type KeyList struct {
	Version int             `json:"version"`
	Dir     string          `json:"dir"`
	Keys    []coord.KeySize `json:"keys"`
	Total   int             `json:"total"` // that fit the query, here and in directories
	Bytes   int64           `json:"bytes"` // of their values
	Dirs    []KeyDir        `json:"dirs,omitempty"`
	Next    string          `json:"next,omitempty"` // the value of after for the next page
}

// A KeyDir is the keys of one directory.
type KeyDir struct {
	Dir   string `json:"dir"` // with a slash at its end
	Keys  int    `json:"keys"`
	Bytes int64  `json:"bytes"`
}

// keys lists keys.
func (s *Server) keys(w http.ResponseWriter, r *http.Request) {
	q, err := readQuery(r.URL.RawQuery, "prefix", "after", "limit", "tree")
	limit, err2 := q.number("limit", maxRows, maxRows)
	tree, err3 := q.oneOf("tree", []string{"yes"})
	if err := cmp.Or(err, err2, err3); err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	prefix := q["prefix"]
	dir := prefix[:strings.LastIndexByte(prefix, '/')+1] // the service knows directories, and a prefix may end within a name
	listing := dir
	if at, ok := At(r.Context()); ok {
		listing = fmt.Sprint(at, " ", dir)
	}
	all, err := s.sizes.get(r.Context(), listing, func(ctx context.Context) ([]coord.KeySize, error) {
		return s.panels.Keys.Sizes(ctx, strings.TrimSuffix(dir, "/"))
	})
	if err != nil {
		refuse(w, http.StatusBadGateway, "no keys: "+err.Error(), "")
		return
	}
	list := KeyList{Version: Version, Dir: prefix, Keys: []coord.KeySize{}}
	rows := 0
	for _, row := range rowsOf(all, prefix, tree != "", &list) {
		if row.name() <= q["after"] && q["after"] != "" {
			continue
		}
		if rows++; rows > limit {
			break
		}
		if list.Next = row.name(); row.dir {
			list.Dirs = append(list.Dirs, KeyDir{row.Key, row.keys, row.Size})
		} else {
			list.Keys = append(list.Keys, row.KeySize)
		}
	}
	if rows <= limit {
		list.Next = ""
	}
	writeJSON(w, http.StatusOK, list)
}

// A keyRow is a key, or a directory.
type keyRow struct {
	coord.KeySize
	dir  bool
	keys int
}

func (r keyRow) name() string { return r.Key }

// rowsOf are the rows of the keys with a prefix, in the order of their names. In a tree keys below a further slash are drawn
// together. It adds up all keys in list.
func rowsOf(all []coord.KeySize, prefix string, tree bool, list *KeyList) (rows []keyRow) {
	for _, k := range all {
		rest, ok := strings.CutPrefix(k.Key, prefix)
		if !ok {
			continue
		}
		list.Total++
		list.Bytes += k.Size
		i := strings.IndexByte(rest, '/')
		if !tree || i < 0 {
			rows = append(rows, keyRow{KeySize: k})
			continue
		}
		dir := prefix + rest[:i+1]
		if last := len(rows) - 1; last >= 0 && rows[last].dir && rows[last].Key == dir {
			rows[last].keys++
			rows[last].Size += k.Size
		} else {
			rows = append(rows, keyRow{coord.KeySize{Key: dir, Size: k.Size}, true, 1})
		}
	}
	slices.SortStableFunc(rows, func(a, b keyRow) int { return cmp.Compare(a.Key, b.Key) })
	return rows
}

// A KeyValue is serry kv get -o json, up to a limit.
type KeyValue struct {
	Version int    `json:"version"`
	Key     string `json:"key"`
	Value   string `json:"value"`
	Base64  string `json:"base64,omitempty"` // of a value that is no text
	Size    int    `json:"size"`
	Cut     bool   `json:"cut,omitempty"`    // the beginning is shown
	Hidden  string `json:"hidden,omitempty"` // why nothing is shown
}

// value is one key with its value.
func (s *Server) value(w http.ResponseWriter, r *http.Request) {
	q, err := readQuery(r.URL.RawQuery, "key")
	if err == nil && q["key"] == "" {
		err = errors.New("no key is given")
	}
	if err != nil {
		refuse(w, http.StatusBadRequest, err.Error(), "")
		return
	}
	ctx, cancel := context.WithTimeout(r.Context(), keysPatience)
	defer cancel()
	value, err := s.panels.Keys.Value(ctx, q["key"])
	switch {
	case errors.Is(err, serry.ErrNotFound):
		refuse(w, http.StatusNotFound, fmt.Sprintf("no key %q", shown(q["key"])), "")
		return
	case err != nil:
		refuse(w, http.StatusBadGateway, "no value: "+err.Error(), "")
		return
	}
	writeJSON(w, http.StatusOK, s.hide.shows(q["key"], value))
}

// shows is what is shown of a value.
func (h hiding) shows(key string, value []byte) KeyValue {
	v := KeyValue{Version: Version, Key: key, Size: len(value)}
	if v.Hidden = h.value(key); v.Hidden != "" {
		return v
	}
	if len(value) > valueShown {
		value, v.Cut = value[:valueShown], true
	}
	if text, ok := asText(value, v.Cut); ok {
		v.Value = text
	} else {
		v.Base64 = base64.StdEncoding.EncodeToString(value)
	}
	return v
}

// asText is a value as text, if it is one. At a cut half a character may be left.
func asText(value []byte, cut bool) (string, bool) {
	text := string(value)
	for i := 1; cut && i < utf8.UTFMax && !utf8.ValidString(text); i++ {
		text = string(value[:len(value)-i])
	}
	other := func(r rune) bool { return unicode.IsControl(r) && !unicode.IsSpace(r) }
	return text, utf8.ValidString(text) && !strings.ContainsFunc(text, other)
}
