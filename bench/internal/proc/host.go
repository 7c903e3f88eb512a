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
	NearIP, FarIP string // of the two ends of the link; nothing else is on their network

	name string // of the namespace, and of the near end of the link
}

const (
	farEnd  = "serry-far"
	subnets = 1 << 14 // networks of four addresses in 10.231.0.0/16, one for each host
	tries   = 64
)

// NewHost makes a host whose link is up. Any number of processes make hosts at the same time: the namespace has the number of the
// network for its name, and the kernel makes each name once.
func NewHost(ctx context.Context) (*Host, error) {
	h, err := reserve(ctx)
	if err != nil {
		return nil, fmt.Errorf("a host in a network namespace (needs root and iproute2): %w", err)
	}
	for _, args := range []string{
		"link add " + h.name + " type veth peer name " + farEnd + " netns " + h.name,
		"addr add " + h.NearIP + "/30 dev " + h.name,
		"link set " + h.name + " up",
		"-n " + h.name + " addr add " + h.FarIP + "/30 dev " + farEnd,
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

// reserve makes the namespace of a network that no other host has.
func reserve(ctx context.Context) (h *Host, err error) {
	for i := range tries {
		n := (os.Getpid()*tries + i) % subnets
		network := fmt.Sprintf("10.231.%d.", n>>6)
		h = &Host{NearIP: network + fmt.Sprint(n<<2&0xff+1), FarIP: network + fmt.Sprint(n<<2&0xff+2), name: fmt.Sprintf("serry%d", n)}
		if err = ip(ctx, "netns add "+h.name); err == nil || !strings.Contains(err.Error(), "File exists") {
			return h, err
		}
	}
	return nil, err
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
