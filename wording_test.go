package serry_test

import (
	"bytes"
	"io/fs"
	"os"
	"path"
	"regexp"
	"strings"
	"testing"
)

// formerWords are texts for people that new users did not understand. Each has been replaced by plain words.
var formerWords = regexp.MustCompile(`(?i)` + strings.Join([]string{
	`where the service is, is not known`,
	`closed the connection without a word`,
	`no server of HTTP/2 is there`,
	`is alive, but has not arrived`,
	`\bsomething is wrong`,
	`after it failed task \d`,
	`none of which may be missed`,
	`It stands for any number of runs`,
	`accepts \d+ arg\(s\)`,
	`strconv\.[A-Z]\w+: parsing`,
}, "|"))

// TestFormerWords keeps these texts out of what people read: the sources of the product, the golden texts of its tests, and
// the documents for users. Comments count as well: they are where such words come from.
func TestFormerWords(t *testing.T) {
	walk(t, func(name string, d fs.DirEntry) error {
		if !d.Type().IsRegular() || !readByPeople(name) {
			return nil
		}
		text, err := os.ReadFile(name)
		if err != nil || bytes.IndexByte(text, 0) >= 0 {
			return err
		}
		for i, line := range strings.Split(string(text), "\n") {
			if m := formerWords.FindString(line); m != "" {
				t.Errorf("%s:%d: says %q; want plain words", name, i+1, m)
			}
		}
		return nil
	})
}

// readByPeople says whether a file has texts of the product. Tests quote what libraries and other programs say.
func readByPeople(name string) bool {
	switch path.Ext(name) {
	case ".go":
		return !strings.HasSuffix(name, "_test.go") && !strings.HasPrefix(name, "internal/lab/")
	case ".txtar", ".golden", ".txt", ".md", ".html", ".js":
		return !strings.HasPrefix(name, "docs/spec/")
	}
	return false
}

// The expressions find what they are meant to find, in the middle of a line, too.
func TestFormerWordsAreFound(t *testing.T) {
	for text, want := range map[string]bool{
		`serry: error: it closed the connection without a word`:        true,
		`note worker/0 dead: after it failed task 1`:                   true,
		`serry: error: accepts 1 arg(s), received 2`:                   true,
		`--tasks "x": strconv.ParseInt: parsing "x": invalid syntax`:   true,
		`rank 1 has not arrived`:                                       false,
		`process 0 first, without a word`:                              false,
		`n, err := strconv.ParseInt(text, 10, 64)`:                     false,
		`Something is wrong with rank 2`:                               true,
		`two of three servers must run; one of them may be restarted.`: false,
	} {
		if got := formerWords.MatchString(text); got != want {
			t.Errorf("former words in %q: %v; want %v", text, got, want)
		}
	}
	for name, want := range map[string]bool{"cmd/serry/why.go": true, "cmd/serry/testdata/script/why.txtar": true, "README.md": true, "launch/job_test.go": false, "docs/spec/agent.md": false} {
		if got := readByPeople(name); got != want {
			t.Errorf("readByPeople(%q) = %v; want %v", name, got, want)
		}
	}
}
