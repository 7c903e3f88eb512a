package page_test

import (
	"bufio"
	"bytes"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/serry-dev/serry/internal/lab"
)

// tools are a serry that was built for a test, and a file with the token of its pages.
type tools struct{ dir, serry, token string }

func buildTools(t *testing.T) tools {
	t.Helper()
	dir := t.TempDir()
	k := tools{dir, filepath.Join(dir, "serry"), filepath.Join(dir, "token")}
	if out, err := exec.CommandContext(t.Context(), "go", "build", "-o", k.serry, "github.com/serry-dev/serry/cmd/serry").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	if err := os.WriteFile(k.token, []byte(stageToken), 0o600); err != nil {
		t.Fatal(err)
	}
	return k
}

// A program is a command of serry that runs and has a page.
type program struct {
	cmd *exec.Cmd
	url string // of the page
}

// start starts a command that serves a page, and waits until it says where. It is killed at the end of the test.
func (k tools) start(t *testing.T, args ...string) *program {
	t.Helper()
	cmd := exec.Command(k.serry, append(args, "--web-token-file", k.token)...)
	cmd.Env = append(os.Environ(), "XDG_RUNTIME_DIR="+k.dir)
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	p := &program{cmd: cmd}
	t.Cleanup(func() {
		p.kill()
		if t.Failed() {
			t.Logf("serry %s:\n%s", strings.Join(args, " "), log.String())
		}
	})
	lines := bufio.NewScanner(out)
	for p.url == "" && lines.Scan() {
		_, p.url, _ = strings.Cut(lines.Text(), "page at ")
	}
	if p.url == "" {
		t.Fatalf("serry %s does not say where its page is", strings.Join(args, " "))
	}
	go func() { _, _ = io.Copy(io.Discard, out) }() // it ends with the process
	return p
}

func (p *program) kill() {
	_ = p.cmd.Process.Kill()
	_ = p.cmd.Wait() // it was killed
}

// One case of the driver, against a real page.
func (b browser) plays(t *testing.T, name string, args ...string) {
	t.Helper()
	r, ok := b.drive(t, args...)[name]
	if !ok || r.Error != "" {
		t.Errorf("%s: %s", name, r.Error)
	}
	if r.Said != "" {
		t.Log(r.Said)
	}
}

// An incident is looked at after the fact: the page of a journal, with a slider over the time.
func TestReplayedJob(t *testing.T) {
	lab.Clause(t, "D-WEB-4", "TD-WEB-1")
	browser := findBrowser(t)
	k := buildTools(t)
	p := k.start(t, "replay", "--web", filepath.Join("..", "..", "cmd", "serry", "testdata", "incident.journal"))
	browser.plays(t, "a journal with a slider", "journal", p.url, stageToken)
}
