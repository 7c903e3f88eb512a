package web

import (
	"io/fs"
	"math"
	"net/http"
	"regexp"
	"strconv"
	"strings"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
)

// pageBytes is how many bytes the files of the page may have together.
const pageBytes = 100 << 10

// The page is small, and asks no other host for anything.
func TestFiles(t *testing.T) {
	lab.Clause(t, "D-WEB-5", "D-WEB-6")
	elsewhere := regexp.MustCompile(`(?i)(https?:)?//[a-z0-9]+\.[a-z]`)
	inline := regexp.MustCompile(`(?i)<script(?:>|[^>]*[^>/]>\s*[^<\s])|\son[a-z]+=|\sstyle=`)
	total := 0
	err := fs.WalkDir(embedded, "files", func(name string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		text, err := embedded.ReadFile(name)
		if err != nil {
			return err
		}
		total += len(text)
		body := strings.ReplaceAll(string(text), "http://www.w3.org/2000/svg", "") // the name of a language
		if m := elsewhere.FindString(body); m != "" {
			t.Errorf("%s names another host: %s", name, m)
		}
		if m := inline.FindString(body); m != "" && strings.HasSuffix(name, ".html") {
			t.Errorf("%s has %q in it, which the policy of the page forbids", name, m)
		}
		for _, bad := range []string{"innerHTML", "outerHTML", "insertAdjacentHTML", "document.write", "eval(", "new Function"} {
			if strings.Contains(body, bad) {
				t.Errorf("%s has %s: text of jobs enters the page by textContent alone", name, bad)
			}
		}
		return nil
	})
	if err != nil || total > pageBytes {
		t.Errorf("the files of the page have %d bytes, %v; want %d at most", total, err, pageBytes)
	}
}

// A browser that has a file asks whether it is still the right one, and is not sent it again.
func TestFilesAreKept(t *testing.T) {
	lab.Clause(t, "D-WEB-6")
	in(t, stalled(), func(t *testing.T, s *Server) {
		first := get(s, "/main.js")
		tag := first.Header().Get("ETag")
		again := get(s, "/main.js", func(r *http.Request) { r.Header.Set("If-None-Match", tag) })
		if first.Code != 200 || first.Header().Get("Content-Type") != "text/javascript; charset=utf-8" || again.Code != http.StatusNotModified {
			t.Errorf("/main.js = %d %v, again %d; want 200, a script, and 304", first.Code, first.Header(), again.Code)
		}
	})
}

// Texts and marks can be told from what is behind them, in both themes.
func TestContrast(t *testing.T) {
	lab.Clause(t, "D-WEB-19")
	sheet, err := embedded.ReadFile("files/style.css")
	if err != nil {
		t.Fatal(err)
	}
	light, dark, ok := strings.Cut(string(sheet), `:root[data-theme="dark"]`)
	if !ok {
		t.Fatal("style.css has no dark theme")
	}
	dark, _, _ = strings.Cut(dark, "}")
	for theme, text := range map[string]string{"light": light, "dark": dark} {
		colours := make(map[string]string)
		for _, m := range regexp.MustCompile(`--([a-z-]+): (#[0-9a-f]{6});`).FindAllStringSubmatch(text, -1) {
			colours[m[1]] = m[2]
		}
		marks := 0
		for name, colour := range colours {
			least := 4.5
			switch {
			case strings.HasPrefix(name, "mark-"):
				least = 3
				marks++
			case name == "page" || name == "panel" || name == "line":
				continue
			}
			for _, behind := range []string{"page", "panel"} {
				if got := contrast(t, colour, colours[behind]); got < least {
					t.Errorf("%s theme: --%s on --%s has a contrast of %.2f; want %.1f", theme, name, behind, got, least)
				}
			}
		}
		if marks != 9 {
			t.Errorf("%s theme has colours for %d marks; want 9", theme, marks)
		}
	}
}

// contrast is that of WCAG 2: 1 to 21.
func contrast(t *testing.T, a, b string) float64 {
	t.Helper()
	x, y := luminance(t, a), luminance(t, b)
	return (max(x, y) + 0.05) / (min(x, y) + 0.05)
}

func luminance(t *testing.T, colour string) float64 {
	t.Helper()
	sum := 0.0
	for i, weight := range []float64{0.2126, 0.7152, 0.0722} {
		n, err := strconv.ParseUint(colour[1+2*i:3+2*i], 16, 8)
		if err != nil {
			t.Fatal(err)
		}
		c := float64(n) / 255
		if c <= 0.03928 {
			c /= 12.92
		} else {
			c = math.Pow((c+0.055)/1.055, 2.4)
		}
		sum += weight * c
	}
	return sum
}

// Every mark has a colour, a sign unless it is no trouble, and a word, in the file that the page reads them from.
func TestMarksHaveSigns(t *testing.T) {
	lab.Clause(t, "D-WEB-19")
	text, err := embedded.ReadFile("files/marks.js")
	if err != nil {
		t.Fatal(err)
	}
	for _, m := range marks {
		line := regexp.MustCompile(`(?m)^  '` + regexp.QuoteMeta(m) + `': \{ word: '[a-z ]+', colour: '--mark-[a-z]+', sign: '(.?)', trouble: (true|false) \},$`).FindStringSubmatch(string(text))
		if line == nil || line[2] == "true" && line[1] == "" {
			t.Errorf("marks.js has %q for mark %s; want a line with a sign if it is trouble", line, m)
		}
	}
	if len(marks) != 9 {
		t.Errorf("%d marks; want 9", len(marks))
	}
}
