package main

import (
	"context"
	"fmt"
	"net"
	"os"
	"strconv"
	"strings"

	"github.com/serry-dev/serry/bench/internal/proc"
	"github.com/serry-dev/serry/link"
	"github.com/serry-dev/serry/link/gauge"
)

// farCommand is the argument with which this program is the far process; the next one is the number of
// connections.
const farCommand = "far"

// options are those of links on both sides: one family has checksums, the other has none.
func options(lanes int) link.Options {
	return link.Options{Lanes: lanes, Collective: link.Never, Transfer: link.Always}
}

// beFar is the main function of the far process. It ends with the near one.
func beFar(lanes string) error {
	n, err := strconv.Atoi(lanes)
	if err != nil {
		return err
	}
	raw, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	go serveRaw(raw)
	ctx := context.Background()
	host, err := gauge.Listen(ctx, "127.0.0.1:0", options(n))
	if err != nil {
		return err
	}
	fmt.Println(raw.Addr(), host.Addresses()[0])
	select {}
}

// A far is the far process as this one sees it.
type far struct {
	*proc.Process
	raw, link string // addresses
}

func startFar(ctx context.Context, lanes int) (*far, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	p, err := proc.Start(ctx, self, farCommand, strconv.Itoa(lanes))
	if err != nil {
		return nil, err
	}
	f := &far{Process: p}
	var ok bool
	if f.raw, f.link, ok = strings.Cut(p.Line, " "); !ok {
		f.stop()
		return nil, fmt.Errorf("the far process says %q", p.Line)
	}
	return f, nil
}

func (f *far) stop() {
	f.Kill()
	<-f.Ended()
}
