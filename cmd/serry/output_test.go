package main

import (
	"bytes"
	"encoding/json"
	"strings"
	"testing"
	"unicode/utf8"

	"github.com/goccy/go-yaml"
	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/serry-dev/serry/diagnose"
)

func newTestTable() *table {
	t := &table{columns: []column{{title: "NAME", most: 8}, {title: "N", right: true}, {title: "TEXT"}}}
	t.add(cell{text: "short"}, cell{text: "7"}, cell{"plain", red})
	t.add(cell{text: "much too long"}, cell{text: "1234"}, cell{text: strings.Repeat("text ", 40)})
	t.add(cell{text: "two\nlines"}, cell{}, cell{})
	return t
}

func TestTable(t *testing.T) {
	for name, c := range map[string]struct {
		printer
		want string
	}{
		"80 columns": {printer{paper: paper{width: 80}}, "" +
			"NAME         N  TEXT\n" +
			"short        7  plain\n" +
			"much ...  1234  " + strings.Repeat("text ", 12) + "t...\n" +
			"two?l...\n"},
		"wide": {printer{format: asWide, paper: paper{width: 80}}, "" +
			"NAME              N  TEXT\n" +
			"short             7  plain\n" +
			"much too long  1234  " + strings.Repeat("text ", 40) + "\n" +
			"two?lines\n"},
		"in colour, on little room": {printer{paper: paper{width: 10, colour: true}}, "" +
			"\x1b[1mNAME\x1b[0m         \x1b[1mN\x1b[0m  \x1b[1mTEXT\x1b[0m\n" +
			"short        7  \x1b[31mp...\x1b[0m\n" +
			"much ...  1234  t...\n" +
			"two?l...\n"},
	} {
		t.Run(name, func(t *testing.T) {
			var out bytes.Buffer
			c.out = &out
			if err := c.table(newTestTable()); err != nil {
				t.Fatal(err)
			}
			if diff := cmp.Diff(c.want, out.String()); diff != "" {
				t.Errorf("table() (-want +got):\n%s", diff)
			}
		})
	}
}

// Every table of 80 columns is one, whatever is in it, and nothing in it breaks a line.
func TestTableFits(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		tab := &table{columns: []column{{title: "A", most: 24}, {title: "B", most: 12, right: true}, {title: "C"}}}
		text := rapid.String()
		for range rapid.IntRange(0, 4).Draw(t, "rows") {
			tab.add(texts(text.Draw(t, "a"), text.Draw(t, "b"), text.Draw(t, "c"))...)
		}
		var out bytes.Buffer
		p := printer{out: &out, paper: paper{width: plainWidth}}
		if err := p.table(tab); err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(out.String(), "\n"), "\n")
		if len(lines) != len(tab.rows)+1 {
			t.Fatalf("%d lines of %d rows:\n%q", len(lines), len(tab.rows), lines)
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); n > plainWidth {
				t.Fatalf("a line of %d characters: %q", n, line)
			}
		}
	})
}

// YAML says the same as the JSON that it is made of.
func TestYAML(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		value := drawValue(t, 3)
		document, err := json.Marshal(value)
		if err != nil {
			t.Fatal(err)
		}
		var out bytes.Buffer
		if err := writeYAML(&out, value); err != nil {
			t.Fatalf("writeYAML(%s) = %v", document, err)
		}
		var want, got any
		if err := json.Unmarshal(document, &want); err != nil {
			t.Fatal(err)
		}
		if err := yaml.Unmarshal(out.Bytes(), &got); err != nil {
			t.Fatalf("writeYAML(%s):\n%s\n%v", document, out.String(), err)
		}
		text, err := json.Marshal(got)
		if err != nil {
			t.Fatal(err)
		}
		again, err := json.Marshal(want)
		if err != nil {
			t.Fatal(err)
		}
		if string(text) != string(again) {
			t.Fatalf("writeYAML(%s):\n%s\nreads as %s", document, out.String(), text)
		}
	})
}

// drawValue makes something that a status could hold: text is printable, since every text of
// clients comes from JSON.
func drawValue(t *rapid.T, depth int) any {
	text := rapid.StringMatching(`[ -~äö\n]{0,12}`)
	switch rapid.IntRange(0, 2+2*min(depth, 1)).Draw(t, "kind") {
	case 0:
		return text.Draw(t, "text")
	case 1:
		return rapid.IntRange(-1000, 1000).Draw(t, "number")
	case 2:
		return rapid.Bool().Draw(t, "bool")
	case 3:
		list := []any{}
		for range rapid.IntRange(0, 3).Draw(t, "items") {
			list = append(list, drawValue(t, depth-1))
		}
		return list
	}
	object := map[string]any{}
	for range rapid.IntRange(0, 3).Draw(t, "fields") {
		object["k"+rapid.StringMatching(`[a-z_: #-]{0,4}`).Draw(t, "key")] = drawValue(t, depth-1)
	}
	return object
}

func TestValueThatIsNotText(t *testing.T) {
	got := newKeyValue("k", []byte{0xff, 0})
	if got.Value != "" || got.Base64 != "/wA=" {
		t.Errorf("newKeyValue() = %+v; want base64", got)
	}
}

func TestRanges(t *testing.T) {
	for want, names := range map[string][]string{
		"":                                nil,
		"worker/3":                        {"worker/3"},
		"worker/0-2 worker/7 worker/9-10": {"worker/0", "worker/1", "worker/2", "worker/7", "worker/9", "worker/10"},
		"a/1 b/2 b/4":                     {"a/1", "b/2", "b/4"},
		"odd worker/1":                    {"odd", "worker/1"},
	} {
		if got := diagnose.TaskRanges(names); got != want {
			t.Errorf("diagnose.TaskRanges(%q) = %q; want %q", names, got, want)
		}
	}
}

func TestFullAddress(t *testing.T) {
	for in, want := range map[string]string{
		"coord":        "coord:8476",
		"coord:1":      "coord:1",
		":1":           "localhost:1",
		"10.0.0.1":     "10.0.0.1:8476",
		"::1":          "[::1]:8476",
		"[::1]":        "[::1]:8476",
		"[::1]:1":      "[::1]:1",
		"unix:sock":    "unix:sock",
		"unix:":        "",
		"":             "",
		"a:b:c":        "",
		"http://coord": "",
	} {
		got, err := fullAddress(in)
		if got != want || (err != nil) != (want == "") {
			t.Errorf("fullAddress(%q) = %q, %v; want %q", in, got, err, want)
		}
	}
}
