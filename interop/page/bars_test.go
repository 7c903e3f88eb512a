package page_test

import (
	"bufio"
	"context"
	"encoding/json"
	"flag"
	"fmt"
	"io/fs"
	"net/http"
	"net/http/httptest"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"
	"text/tabwriter"
	"time"

	"github.com/serry-dev/serry/internal/lab"
)

var (
	bars   = flag.Bool("bars", false, "measure the page of 10,000 ranks beside its bars")
	viewed = flag.String("viewed", "", "address of a page that this process looks at as 100 viewers, until it is killed")
)

const (
	clockTicks = 100 // a second, in /proc
	barRanks   = 10_000
	barViewers = 100
	barFor     = 10 * time.Second // that the viewers look
)

// A bar is a figure, and what it may be at most.
type bar struct {
	what string
	got  float64
	most float64
	unit string
}

// TestBars prints the figures of TD-WEB-2 and D-WEB-9 to 11, each beside its bar: make bench-page. It fails where one is missed.
func TestBars(t *testing.T) {
	if !*bars {
		t.Skip("not asked for: make bench-page")
	}
	lab.Clause(t, "D-WEB-11", "TD-WEB-2")
	browser := findBrowser(t)
	s := newStage(t)
	stage := httptest.NewServer(s)
	defer stage.Close()
	r := browser.drive(t, "bars", stage.URL)["bars"]
	var seen struct{ Paint, Cells, Script, Whole, Foreign, Streams float64 }
	if err := json.Unmarshal([]byte(r.Said), &seen); err != nil || r.Error != "" {
		t.Fatalf("the driver says %q, %s", r.Said, r.Error)
	}
	few, _ := viewers(t, 1)
	all, messages := viewers(t, barViewers)
	served := servedViewers(t)
	table := []bar{
		{"files of the page", float64(fileBytes(t)) / 1024, 100, "KiB"},
		{"requests to other hosts", seen.Foreign, 0, ""},
		{"first paint, median of 5", seen.Paint, 1000, "ms"},
		{"all cells drawn, median of 5", seen.Cells, 1000, "ms"},
		{"script of a tab in a busy job", seen.Script, 50, "ms/s"},
		{"the same with what the shared worker does", seen.Whole, 50, "ms/s"},
		{"streams of ten tabs, all live", seen.Streams, 1, ""},
		{"100 viewers of a busy job", all, 10, "% of a core"},
		{"100 viewers of serry serve, all of it", served, 10, "% of a core"},
	}
	var text strings.Builder
	w := tabwriter.NewWriter(&text, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "page of %d ranks\tmeasured\tat most\t\t\n", barRanks)
	for _, b := range table {
		verdict := "ok"
		if b.got > b.most {
			verdict = "MISS"
			t.Errorf("%s: %.1f %s; want %.0f at most", b.what, b.got, b.unit, b.most)
		}
		fmt.Fprintf(w, "%s\t%.1f\t%.0f\t%s\t%s\n", b.what, b.got, b.most, b.unit, verdict)
	}
	_ = w.Flush() // into memory
	fmt.Println("a busy job: twice a second a tenth of the ranks have other states, ten things happen, and two barriers are others")
	fmt.Printf("%sone viewer costs %.1f %% of a core; each of the %d got %.1f messages a second\n", &text, few, barViewers, messages)
}

// fileBytes is how many bytes the files of the page have.
func fileBytes(t *testing.T) (total int64) {
	t.Helper()
	err := filepath.WalkDir(filepath.Join("..", "..", "web", "files"), func(_ string, d fs.DirEntry, err error) error {
		if err != nil || d.IsDir() {
			return err
		}
		info, err := d.Info()
		if err == nil {
			total += info.Size()
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	return total
}

// viewers lets another process look at a busy job as so many viewers, and returns how much of a core this process needs for them and for the
// job itself, in percent, and how many messages a viewer gets a second.
func viewers(t *testing.T, n int) (percent, messages float64) {
	t.Helper()
	j := newStaged(t)
	defer j.kill()
	j.play("stuck", barRanks)
	count, counts, stop := look(t, j.address, n)
	defer stop()
	busy := time.NewTicker(500 * time.Millisecond)
	defer busy.Stop()
	seed := uint64(0)
	began, used, got := time.Now(), processorTime(t), count()
	for time.Since(began) < barFor {
		seed++
		j.shuffle(seed)
		<-busy.C
	}
	wall := time.Since(began).Seconds()
	percent = 100 * (processorTime(t) - used).Seconds() / wall
	had := latest(counts) - got
	return percent, float64(had) / time.Since(began).Seconds() / float64(n)
}

// look starts another process that looks at a page as so many viewers. It returns when all have had something. count is how many messages they
// have had together, stop ends the process.
func look(t *testing.T, address string, n int) (count func() int, counts *bufio.Scanner, stop func()) {
	t.Helper()
	cmd := exec.CommandContext(t.Context(), os.Args[0], "-test.run", "^TestViewers$", "-viewed", fmt.Sprintf("%s %d", address, n))
	out, err := cmd.StdoutPipe()
	if err == nil {
		err = cmd.Start()
	}
	if err != nil {
		t.Fatal(err)
	}
	counts = bufio.NewScanner(out)
	count = func() (total int) {
		if !counts.Scan() {
			t.Fatal("the viewers have ended")
		}
		_, _ = fmt.Sscan(counts.Text(), &total)
		return total
	}
	for count() < n {
	}
	return count, counts, func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	}
}

// servedViewers is how much of a core serry serve needs in all while 100 viewers look at its page: a service of 10,000 ranks, none of which has
// come yet, whose keys change once a second.
func servedViewers(t *testing.T) (percent float64) {
	t.Helper()
	k := buildTools(t)
	p := k.start(t, "serve", "--tasks", fmt.Sprint(barRanks), "--listen", "127.0.0.1:0", "--web", "127.0.0.1:0")
	_, _, stop := look(t, strings.TrimSuffix(strings.TrimPrefix(p.url, "http://"), "/"), barViewers)
	defer stop()
	used := func() time.Duration {
		text, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.cmd.Process.Pid))
		if err != nil {
			t.Fatal(err)
		}
		_, rest, _ := strings.Cut(string(text), ") ") // the name before it may have anything in it
		var user, system time.Duration
		if _, err := fmt.Sscan(strings.Join(strings.Fields(rest)[11:13], " "), &user, &system); err != nil {
			t.Fatal(err)
		}
		return (user + system) * time.Second / clockTicks
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	began, before := time.Now(), used()
	for n := 0; time.Since(began) < barFor; n++ {
		if out, err := exec.CommandContext(t.Context(), k.serry, "kv", "put", fmt.Sprint("step/", n), "x", "--address", p.address).CombinedOutput(); err != nil {
			t.Fatalf("serry kv put: %v: %s", err, out)
		}
		<-tick.C
	}
	return 100 * (used() - before).Seconds() / time.Since(began).Seconds()
}

// latest is the last count that is there.
func latest(counts *bufio.Scanner) (total int) {
	end := time.Now().Add(time.Second)
	for counts.Scan() {
		_, _ = fmt.Sscan(counts.Text(), &total)
		if time.Now().After(end) {
			break
		}
	}
	return total
}

// processorTime is how much of it this process has used.
func processorTime(t *testing.T) time.Duration {
	t.Helper()
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		t.Fatal(err)
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano())
}

// TestViewers is the other process of TestBars: it says each tenth of a second how many messages all viewers have had together.
func TestViewers(t *testing.T) {
	if *viewed == "" {
		t.Skip("it is a part of TestBars")
	}
	lab.Clause(t, "D-WEB-10")
	var address string
	var n int
	if _, err := fmt.Sscan(*viewed, &address, &n); err != nil {
		t.Fatal(err)
	}
	var total struct {
		sync.Mutex
		n int
	}
	for range n {
		go func() {
			r, err := http.NewRequestWithContext(context.Background(), "GET", "http://"+address+"/api/v1/stream", nil)
			if err != nil {
				panic(err)
			}
			r.Header.Set("Authorization", "Bearer "+stageToken)
			reply, err := http.DefaultClient.Do(r)
			if err != nil {
				return
			}
			defer reply.Body.Close()
			lines := bufio.NewReader(reply.Body)
			for {
				line, err := lines.ReadString('\n')
				if err != nil {
					return
				}
				if strings.HasPrefix(line, "data: ") {
					total.Lock()
					total.n++
					total.Unlock()
				}
			}
		}()
	}
	for range time.Tick(100 * time.Millisecond) {
		total.Lock()
		fmt.Println(total.n)
		total.Unlock()
	}
}
