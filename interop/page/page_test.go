// Package page_test shows the page of a job to a real browser. testdata/drive.mjs drives it, and asks this test by HTTP for jobs to look
// at and for what shall happen to them.
package page_test

import (
	"bufio"
	"encoding/json"
	"errors"
	"flag"
	"io"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
)

var shots = flag.String("shots", "", "folder to leave screenshots of the main states in")

// cases are what the driver plays, and the clauses that each shows.
var cases = []struct {
	name    string
	clauses []string
}{
	{"verdict, waits and ranks of each scene", []string{"D-WEB-1", "D-WEB-2", "D-WEB-3", "TD-WEB-1"}},
	{"the server is killed and comes back", []string{"D-WEB-4", "TD-WEB-1"}},
	{"10,000 ranks, and no other host", []string{"D-WEB-6", "D-WEB-7", "TD-WEB-2"}},
	{"every cell has the colour of its state", []string{"D-WEB-7", "D-WEB-8", "TD-WEB-3"}},
	{"ten tabs on one stream", []string{"D-WEB-9", "TD-WEB-4"}},
	{"text of a job is text", []string{"D-WEB-17", "TD-WEB-6"}},
	{"the token leaves the address", []string{"D-WEB-15", "TD-WEB-6"}},
	{"keyboard, themes and the table", []string{"D-WEB-19", "D-WEB-20", "TD-WEB-7"}},
	{"without JavaScript", []string{"D-WEB-21", "TD-WEB-7"}},
	{"a tab without a shared worker", []string{"D-WEB-9", "TD-WEB-4"}},
	{"names and frames of a job are text", []string{"D-WEB-17", "TD-WEB-6"}},
	{"what a screen reader is told", []string{"D-WEB-20", "TD-WEB-7"}},
	{"no motion where none is wanted", []string{"D-WEB-19", "TD-WEB-7"}},
	{"a screen with two pixels for one", []string{"D-WEB-7", "TD-WEB-3"}},
	{"above 40,000 ranks a cell is a host", []string{"D-WEB-7", "TD-WEB-3"}},
	{"nothing moves unless something has changed", []string{"D-WEB-3", "D-WEB-20", "TD-WEB-7"}},
	{"a question that failed is asked again", []string{"D-WEB-4", "TD-WEB-1"}},
	{"the host of the page dies", []string{"D-WEB-4", "TD-WEB-1"}},
}

// A result is what the driver says of a case, a line of JSON each.
type result struct {
	Case  string `json:"case"`
	Error string `json:"error"`
	Said  string `json:"said"` // figures
}

func TestPage(t *testing.T) {
	browser := findBrowser(t)
	stage := httptest.NewServer(newStage(t))
	defer stage.Close()
	results := browser.drive(t, "cases", stage.URL)
	for _, c := range slices.Concat(cases, panelCases) {
		t.Run(c.name, func(t *testing.T) {
			lab.Clause(t, c.clauses...)
			lab.Clause(t, "D-WEB-22")
			r, ok := results[c.name]
			switch {
			case !ok:
				t.Error("the driver did not play this case")
			case r.Error != "":
				t.Error(r.Error)
			}
			if r.Said != "" {
				t.Log(r.Said)
			}
		})
	}
}

// TestShots leaves pictures of the main states: make shots.
func TestShots(t *testing.T) {
	if *shots == "" {
		t.Skip("no folder is given: go test ./interop/page -run TestShots -shots DIR")
	}
	browser := findBrowser(t)
	stage := httptest.NewServer(newStage(t))
	defer stage.Close()
	dir, err := filepath.Abs(*shots)
	if err == nil {
		err = os.MkdirAll(dir, 0o777)
	}
	if err != nil {
		t.Fatal(err)
	}
	k := buildTools(t)
	journal := k.start(t, "replay", "--web", incident)
	for name, r := range browser.drive(t, "shots", stage.URL, dir, journal.url, stageToken) {
		if r.Error != "" {
			t.Errorf("%s: %s", name, r.Error)
		}
		t.Log(name, r.Said)
	}
}

// A browser is a real one, with what drives it.
type browser struct{ node, modules, chromium string }

// findBrowser finds what scripts/chromium.sh has installed. Under CI it must be there.
func findBrowser(t *testing.T) browser {
	t.Helper()
	root, err := filepath.Abs(filepath.Join("..", ".."))
	if err != nil {
		t.Fatal(err)
	}
	b := browser{modules: filepath.Join(root, ".cache", "browser", "node_modules")}
	var missing []error
	b.node, err = exec.LookPath("node")
	missing = append(missing, err)
	b.chromium, err = exec.LookPath("chromium")
	missing = append(missing, err)
	_, err = os.Stat(filepath.Join(b.modules, "playwright-core"))
	if err := errors.Join(append(missing, err)...); err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("no browser: %v; scripts/chromium.sh installs it", err)
		}
		t.Skipf("NOT TESTED: the page in a real browser: %v; scripts/chromium.sh installs it", err)
	}
	return b
}

// drive runs the driver, and returns what it says of each case.
func (b browser) drive(t *testing.T, args ...string) map[string]result {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), b.node, append([]string{filepath.Join("testdata", "drive.mjs")}, args...)...)
	cmd.Env = append(os.Environ(), "PLAYWRIGHT="+filepath.Join(b.modules, "playwright-core", "index.mjs"), "CHROMIUM="+b.chromium)
	var log strings.Builder
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	results := make(map[string]result)
	lines := bufio.NewScanner(out)
	for lines.Scan() {
		var r result
		if err := json.Unmarshal(lines.Bytes(), &r); err != nil {
			t.Errorf("the driver says %q", lines.Text())
			continue
		}
		results[r.Case] = r
	}
	_, _ = io.Copy(io.Discard, out) // what is too long for a line
	if err := cmd.Wait(); err != nil {
		t.Errorf("the driver ended with %v:\n%s", err, log.String())
	}
	return results
}
