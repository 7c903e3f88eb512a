package main

import (
	"context"
	"io"
	"net"
	"net/http"
	"os"
	"regexp"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/rogpeppe/go-internal/testscript"

	"github.com/serry-dev/serry/internal/lab"
	"github.com/serry-dev/serry/internal/pause"
	"github.com/serry-dev/serry/wire/mtls"
)

// fetches gets a path of the page again and again, until it matches, and leaves the body in the file fetched.
func fetches(ts *testscript.TestScript, _ bool, args []string) {
	want := regexp.MustCompile(args[0])
	ctx, cancel := context.WithTimeout(context.Background(), untilPatience)
	defer cancel()
	for {
		reply := request(ctx, ts, args[1])
		body, err := io.ReadAll(reply.Body)
		reply.Body.Close()
		ts.Check(err)
		if want.Match(body) {
			ts.Check(os.WriteFile(ts.MkAbs("fetched"), body, 0o600))
			return
		}
		if pause.For(ctx, 100*time.Millisecond) != nil {
			ts.Fatalf("GET %s: no match for %q in\n%s", args[1], args[0], body)
		}
	}
}

// act asks the page to change the job, with the token for that in $WRITE, and leaves the answer in the file fetched.
func act(ts *testscript.TestScript, neg bool, args []string) {
	r, err := http.NewRequest("POST", strings.TrimSuffix(ts.Getenv("PAGE"), "/")+"/api/v1/acts/"+args[0], strings.NewReader(args[1]))
	ts.Check(err)
	r.Header.Set("Authorization", "Bearer "+ts.Getenv("WRITE"))
	r.Header.Set("Content-Type", "application/json")
	r.Header.Set("Serry-Act", "yes")
	reply, err := http.DefaultClient.Do(r)
	ts.Check(err)
	defer reply.Body.Close()
	body, err := io.ReadAll(reply.Body)
	ts.Check(err)
	ts.Check(os.WriteFile(ts.MkAbs("fetched"), body, 0o600))
	if neg == (reply.StatusCode == http.StatusOK) {
		ts.Fatalf("POST %s = %s\n%s", args[0], reply.Status, body)
	}
}

// Requests that come at once, as those of a browser that opens the page do, share one connection: none closes that of another.
func TestPageRequestsShareAConnection(t *testing.T) {
	lab.Clause(t, "D-WEB-2")
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	source := newPageSource(l.Addr().String(), mtls.Files{})
	defer source.close()
	var all [8]*remote
	var errs [8]error
	start := make(chan struct{})
	var work sync.WaitGroup
	for i := range all {
		work.Go(func() {
			<-start
			all[i], errs[i] = source.open(t.Context())
		})
	}
	close(start)
	work.Wait()
	for i := range all {
		if errs[i] != nil || all[i] != all[0] {
			t.Errorf("open() of request %d = %p, %v; want %p", i, all[i], errs[i], all[0])
		}
	}
}
