package main

import (
	"bytes"
	"errors"
	"fmt"
	"io"
	"maps"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"

	"github.com/serry-dev/serry/client"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/launch"
	"github.com/serry-dev/serry/server"
	"github.com/serry-dev/serry/topo"
)

// A machine is a host that is played.
type machine struct {
	name string
	boot int
}

// record is what the machine is to its launcher.
func (m machine) record() *topo.TaskRecord {
	return &topo.TaskRecord{MachineID: "machine-" + m.name, BootID: m.bootID(), Hostname: "host-" + m.name}
}

func (m machine) bootID() string { return fmt.Sprintf("boot-%s-%d", m.name, m.boot) }

// environment is what the machine is to its tasks.
func (m machine) environment() []string {
	r := m.record()
	return []string{
		client.EnvMachineID + "=" + r.MachineID, client.EnvBootID + "=" + r.BootID, client.EnvHostname + "=" + r.Hostname,
		fmt.Sprintf("%s=GPU-%s-0,GPU-%s-1", client.EnvDeviceUUIDs, m.name, m.name),
	}
}

// A stage is where runs of the job are played.
type stage struct {
	dir string // disks of the hosts, the store, and the state of the last run
	out io.Writer
}

// run plays one run: a launcher for each machine, numbered in their order, and one task on each.
func (s stage) run(verb string, on []machine, state bool) error {
	coordinator, err := freeAddress()
	if err != nil {
		return err
	}
	heard := &display{}
	jobs := make([]*launch.Job, len(on))
	for node, m := range on {
		cfg := launch.Config{
			Command: []string{"/proc/self/exe"}, Tasks: 1,
			Nodes: len(on), Node: node, Coordinator: coordinator, Identity: m.record(),
			Env:     append(os.Environ(), append(m.environment(), envVerb+"="+verb, envDir+"="+s.dir)...),
			Service: server.Config{Cluster: coord.Config{RegisterBarrier: true, Republished: topo.Republished}},
			Display: heard,
		}
		if state {
			cfg.StateDir = filepath.Join(s.dir, "state")
		}
		if jobs[node], err = launch.Start(cfg); err != nil {
			return errors.Join(err, end(jobs[:node]))
		}
	}
	err = end(jobs)
	heard.print(s.out)
	return err
}

// end waits for all launchers.
func end(jobs []*launch.Job) error {
	var errs []error
	for _, j := range jobs {
		if r := j.Wait(); !r.Well() {
			errs = append(errs, fmt.Errorf("the run failed: %v %v", r.First, r.Err))
		}
	}
	return errors.Join(errs...)
}

// freeAddress is one that no process listened on a moment ago.
func freeAddress() (string, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return "", err
	}
	defer l.Close()
	return l.Addr().String(), nil
}

// A display gathers what launchers and tasks say.
type display struct {
	mu struct {
		sync.Mutex
		notes []string
		lines map[int][]string // by task
	}
}

// Line takes a line of a task.
func (d *display) Line(task int, _ launch.Stream, text []byte) {
	d.mu.Lock()
	defer d.mu.Unlock()
	if d.mu.lines == nil {
		d.mu.lines = make(map[int][]string)
	}
	d.mu.lines[task] = append(d.mu.lines[task], string(bytes.TrimSpace(text)))
}

// Note takes a note of a launcher.
func (d *display) Note(n launch.Note) {
	d.mu.Lock()
	defer d.mu.Unlock()
	d.mu.notes = append(d.mu.notes, n.Text)
}

// print shows what launchers said about hosts, then what tasks said, in an order that does not depend on
// which one was faster.
func (d *display) print(out io.Writer) {
	d.mu.Lock()
	defer d.mu.Unlock()
	slices.Sort(d.mu.notes)
	for _, n := range d.mu.notes {
		if strings.Contains(n, " has rank ") || strings.Contains(n, "machine_id") || strings.Contains(n, "boot_id") {
			fmt.Fprintln(out, "launcher:", n)
		}
	}
	for _, task := range slices.Sorted(maps.Keys(d.mu.lines)) {
		for _, line := range d.mu.lines[task] {
			fmt.Fprintf(out, "task %d: %s\n", task, line)
		}
	}
}
