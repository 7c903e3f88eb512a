package coord_test

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
)

// A command is one line of a script: its name, words, and options such as timeout=1s or connected.
type command struct {
	line    string // as it was written
	name    string
	words   []string
	options map[string]string
}

// flags are options without a value, which are told from words by their name.
func flags() []string {
	return []string{
		"connected", "exclude-unsynced", "errors-by-beat", "farewell", "names", "notes", "overwrite",
		"hard", "reconnect", "recoverable", "register-barrier", "directory",
	}
}

// parse splits a line at blanks. A part in double quotes is a Go string. x*1024 means that often x.
func parse(line string) (command, error) {
	c := command{line: line, options: make(map[string]string)}
	optionName := regexp.MustCompile(`^([a-z-]+)=`)
	for rest := line; rest != ""; rest = strings.TrimLeft(rest, " ") {
		name := optionName.FindStringSubmatch(rest)
		if name != nil {
			rest = rest[len(name[0]):]
		}
		word, after, err := cutWord(rest)
		if err != nil {
			return c, err
		}
		rest = after
		switch {
		case name != nil:
			c.options[name[1]] = word
		case c.name == "":
			c.name = word
		case slices.Contains(flags(), word):
			c.options[word] = ""
		default:
			c.words = append(c.words, word)
		}
	}
	return c, nil
}

func cutWord(s string) (word, rest string, err error) {
	if quoted, err := strconv.QuotedPrefix(s); err == nil {
		word, err = strconv.Unquote(quoted)
		return word, s[len(quoted):], err
	} else if strings.HasPrefix(s, `"`) {
		return "", "", err
	}
	word, rest, _ = strings.Cut(s, " ")
	if letter, times, ok := strings.Cut(word, "*"); ok {
		n, err := strconv.Atoi(times)
		return strings.Repeat(letter, n), rest, err
	}
	return word, rest, nil
}

// word is the word at a place, or empty.
func (c command) word(at int) string {
	if at >= len(c.words) {
		return ""
	}
	return c.words[at]
}

// String shows name and words, without options.
func (c command) String() string {
	shown := c.name
	for _, w := range c.words {
		if quoted := strconv.Quote(w); quoted != `"`+w+`"` || w == "" || strings.Contains(w, " ") {
			w = quoted
		}
		shown += " " + w
	}
	return shown
}

func (c command) has(option string) bool {
	_, ok := c.options[option]
	return ok
}

func (c command) option(name string) string { return c.options[name] }

// option reads an option as the type of its default.
func option[T ~int | ~int64 | ~uint64](t *testing.T, c command, name string, otherwise T) T {
	t.Helper()
	text, ok := c.options[name]
	if !ok {
		return otherwise
	}
	if _, ok := any(otherwise).(time.Duration); ok {
		return T(duration(t, text))
	}
	return number[T](t, text)
}

func number[T ~int | ~int64 | ~uint64](t *testing.T, text string) T {
	t.Helper()
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return T(n)
	}
	n, err := strconv.ParseUint(text, 10, 64)
	if err != nil {
		t.Fatalf("%q: want a number", text)
	}
	return T(n)
}

func duration(t *testing.T, text string) time.Duration {
	t.Helper()
	d, err := time.ParseDuration(text)
	if err != nil {
		t.Fatalf("%q: want a duration", text)
	}
	return d
}

// jobs reads tasks=3 or jobs=ps:1,worker:2; nil if neither is there.
func (s *script) jobs(c command) []coord.Job {
	if c.has("tasks") {
		return []coord.Job{{Name: "worker", Tasks: option(s.t, c, "tasks", 0)}}
	}
	if !c.has("jobs") {
		return nil
	}
	var jobs []coord.Job
	for part := range strings.SplitSeq(c.option("jobs"), ",") {
		name, n, _ := strings.Cut(part, ":")
		jobs = append(jobs, coord.Job{Name: name, Tasks: number[int](s.t, n)})
	}
	return jobs
}

// task reads 3 or worker/3. A bare number counts in the first job.
func (s *script) task(text string) serry.TaskID {
	s.t.Helper()
	if job, n, ok := strings.Cut(text, "/"); ok {
		return serry.TaskID{Job: job, Index: number[int](s.t, n)}
	}
	return serry.TaskID{Job: s.cfg.Jobs[0].Name, Index: number[int](s.t, text)}
}

// tasks reads 0,2..4.
func (s *script) tasks(text string) []serry.TaskID {
	s.t.Helper()
	var ids []serry.TaskID
	for part := range strings.SplitSeq(text, ",") {
		first, last, ok := strings.Cut(part, "..")
		if !ok {
			ids = append(ids, s.task(part))
			continue
		}
		for i := number[int](s.t, first); i <= number[int](s.t, last); i++ {
			ids = append(ids, s.task(strconv.Itoa(i)))
		}
	}
	return ids
}

// shorten writes 40 and more of the same letter in a row as x*40, the way scripts do.
func shorten(s string) string {
	var b strings.Builder
	letters := []rune(s)
	for i := 0; i < len(letters); {
		n := 1
		for i+n < len(letters) && letters[i+n] == letters[i] {
			n++
		}
		if n >= 40 {
			fmt.Fprintf(&b, "%c*%d", letters[i], n)
		} else {
			b.WriteString(string(letters[i : i+n]))
		}
		i += n
	}
	return b.String()
}
