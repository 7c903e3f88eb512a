package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// A host is a network namespace that one link connects to the machine. When the link is down, nothing
// of what is inside can be heard, and no process is told so.
type host struct {
	name string // of the namespace, and of the near end of the link
}

// The two ends of the link. Nothing else is on their network.
const (
	nearIP = "10.231.77.1"
	farIP  = "10.231.77.2"
	farEnd = "serry-far"
)

// newHost makes a host whose link is up.
func newHost(ctx context.Context) (*host, error) {
	h := &host{name: fmt.Sprintf("serry%d", os.Getpid())}
	for _, args := range []string{
		"netns add " + h.name,
		"link add " + h.name + " type veth peer name " + farEnd + " netns " + h.name,
		"addr add " + nearIP + "/30 dev " + h.name,
		"link set " + h.name + " up",
		"-n " + h.name + " addr add " + farIP + "/30 dev " + farEnd,
		"-n " + h.name + " link set lo up",
		"-n " + h.name + " link set " + farEnd + " up",
	} {
		if err := ip(ctx, args); err != nil {
			return nil, errors.Join(fmt.Errorf("a host in a network namespace (needs root; -losses 0 leaves it out): %w", err), h.remove())
		}
	}
	return h, nil
}

// prefix runs a command on the host.
func (h *host) prefix() []string { return []string{"ip", "netns", "exec", h.name} }

// link sets the link of the host up or down.
func (h *host) link(ctx context.Context, state string) error {
	return ip(ctx, "-n "+h.name+" link set "+farEnd+" "+state)
}

// remove ends the host. What runs there must have ended.
func (h *host) remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	return ip(ctx, "netns del "+h.name) // the link goes with it
}

func ip(ctx context.Context, args string) error {
	out, err := exec.CommandContext(ctx, "ip", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, strings.TrimSpace(string(out)))
	}
	return nil
}
