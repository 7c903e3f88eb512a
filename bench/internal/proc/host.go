package proc

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strings"
	"time"
)

// A Host is a network namespace that one link connects to the machine. When the link is down, nothing
// of what is inside can be heard, and no process is told so.
type Host struct {
	name string // of the namespace, and of the near end of the link
}

// The two ends of the link to a Host. Nothing else is on their network.
const (
	NearIP = "10.231.77.1"
	FarIP  = "10.231.77.2"
	farEnd = "serry-far"
)

// NewHost makes a host whose link is up.
func NewHost(ctx context.Context) (*Host, error) {
	h := &Host{name: fmt.Sprintf("serry%d", os.Getpid())}
	for _, args := range []string{
		"netns add " + h.name,
		"link add " + h.name + " type veth peer name " + farEnd + " netns " + h.name,
		"addr add " + NearIP + "/30 dev " + h.name,
		"link set " + h.name + " up",
		"-n " + h.name + " addr add " + FarIP + "/30 dev " + farEnd,
		"-n " + h.name + " link set lo up",
		"-n " + h.name + " link set " + farEnd + " up",
	} {
		if err := ip(ctx, args); err != nil {
			h.Remove() // of what there is
			return nil, fmt.Errorf("a host in a network namespace (needs root and iproute2): %w", err)
		}
	}
	return h, nil
}

// Prefix runs a command on the host.
func (h *Host) Prefix() []string { return []string{"ip", "netns", "exec", h.name} }

// Link sets the link of the host up or down.
func (h *Host) Link(ctx context.Context, state string) error {
	return ip(ctx, "-n "+h.name+" link set "+farEnd+" "+state)
}

// Remove ends the host. What runs there must have ended.
func (h *Host) Remove() error {
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	// The kernel takes its time with a namespace; the link is gone at once, and its name free for the next host.
	return errors.Join(ip(ctx, "link del "+h.name), ip(ctx, "netns del "+h.name))
}

func ip(ctx context.Context, args string) error {
	out, err := exec.CommandContext(ctx, "ip", strings.Fields(args)...).CombinedOutput()
	if err != nil {
		return fmt.Errorf("ip %s: %w: %s", args, err, strings.TrimSpace(string(out)))
	}
	return nil
}
