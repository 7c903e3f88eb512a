package page_test

import (
	"bufio"
	"bytes"
	"cmp"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/serry-dev/serry/internal/lab"
)

// namedWithin is how soon a page names a rank that sleeps, on a machine that does nothing else.
const namedWithin = 12 * time.Second

// A rank of a real jax job falls asleep while its page is open: the page names the rank, its place and since when, and is not
// loaded again. How long that took is said; with -bars it must not take long.
func TestRealJob(t *testing.T) {
	lab.Clause(t, "D-WEB-1", "D-WEB-15")
	browser := findBrowser(t)
	python, err := filepath.Abs(filepath.Join("..", "..", ".cache", "venv", "jax-new", "bin", "python"))
	if err == nil {
		_, err = os.Stat(python)
	}
	if err != nil {
		if os.Getenv("CI") == "true" {
			t.Fatalf("no jax: %v; scripts/venvs.sh jax-new makes it", err)
		}
		t.Skipf("NOT TESTED: the page of a real jax job: %v; scripts/venvs.sh jax-new makes it", err)
	}
	k := buildTools(t)
	job := exec.CommandContext(t.Context(), k.serry, "run", "-n", "4", "--web", "--web-token-file", k.token, "--", python, filepath.Join("testdata", "train.py"))
	job.Env = append(os.Environ(), "JAX_PLATFORMS=cpu", "XDG_RUNTIME_DIR="+k.dir)
	var out bytes.Buffer
	job.Stdout = &out
	said, err := job.StderrPipe()
	if err != nil {
		t.Fatal(err)
	}
	if err := job.Start(); err != nil {
		t.Fatal(err)
	}
	lines := bufio.NewScanner(said)
	url := ""
	for url == "" && lines.Scan() {
		_, url, _ = strings.Cut(lines.Text(), "page at ")
	}
	drained := make(chan struct{})
	go func() { // so that the job can go on writing
		defer close(drained)
		for lines.Scan() {
		}
	}()
	results := browser.drive(t, "real", url, stageToken)
	if err := job.Process.Signal(syscall.SIGINT); err != nil {
		t.Errorf("the job has ended before: %v", err)
	}
	<-drained
	_ = job.Wait() // it was interrupted
	r, ok := results["a rank falls asleep"]
	if !ok || r.Error != "" {
		t.Errorf("the page does not tell of the rank that sleeps: %s\nthe job wrote:\n%s", r.Error, out.String())
	}
	_, at, _ := strings.Cut(out.String(), "asleep at ")
	at, _, _ = strings.Cut(at, "\n")
	asleep, err := strconv.ParseFloat(at, 64)
	named, err2 := strconv.ParseFloat(r.Said, 64)
	if err := cmp.Or(err, err2); err != nil {
		t.Fatalf("when the rank fell asleep, and when it was named: %v", err)
	}
	took := time.Duration((named - asleep) * float64(time.Second)).Round(time.Millisecond)
	t.Logf("rank 3 is named %v after it fell asleep; at most %v on an idle machine", took, namedWithin)
	if *bars && took > namedWithin {
		t.Errorf("rank 3 is named after %v; want %v at most", took, namedWithin)
	}
}
