package main

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"github.com/serry-dev/serry/diagnose"
	"github.com/serry-dev/serry/wire/mtls"
)

// An entry is a job, or a server, of this user on this host, as its process has written it down. One that
// was killed cannot write down its end: whether its process lives is seen by number and start time.
type entry struct {
	Version int       `json:"version"`
	Kind    string    `json:"kind"` // the command that runs it: run or serve
	PID     int       `json:"pid"`
	Start   string    `json:"start"`             // of the process, in ticks since the machine was started
	Machine string    `json:"machine"`           // as long as it is not started again
	Space   string    `json:"space"`             // in which process numbers are counted
	Address string    `json:"address,omitempty"` // as --address takes it; empty: not known yet
	Group   string    `json:"group,omitempty"`   // the same for all servers of one service
	TLS     tlsFiles  `json:"tls,omitzero"`
	Tasks   int       `json:"tasks"`
	Attempt int       `json:"attempt,omitempty"`
	Command []string  `json:"command"`
	Dir     string    `json:"dir,omitempty"` // where it was started
	Since   time.Time `json:"since"`
	Ended   time.Time `json:"ended,omitzero"`
	End     string    `json:"end,omitempty"` // how it ended
}

// tlsFiles are those by which the service of an entry is reached.
type tlsFiles struct {
	Cert       string `json:"cert,omitempty"`
	Key        string `json:"key,omitempty"`
	CA         string `json:"ca,omitempty"`
	PeerPrefix string `json:"peer_prefix,omitempty"`
}

func (f tlsFiles) files() mtls.Files {
	return mtls.Files{Cert: f.Cert, Key: f.Key, CA: f.CA, PeerPrefix: f.PeerPrefix}
}

// listedFiles makes the paths of files good for other working directories.
func listedFiles(f mtls.Files) tlsFiles {
	l := tlsFiles{f.Cert, f.Key, f.CA, f.PeerPrefix}
	for _, p := range []*string{&l.Cert, &l.Key, &l.CA} {
		if full, err := filepath.Abs(*p); *p != "" && err == nil {
			*p = full
		}
	}
	return l
}

// Kinds of entries.
const (
	kindRun   = "run"
	kindServe = "serve"
)

// How jobs end.
const (
	endedWell   = "ended well"
	endedByUser = "ended by a signal"
)

const (
	maxEntry     = 64 << 10 // bytes that such a file may have
	maxEntries   = 1024     // files that are looked at
	maxEnded     = 16       // entries of jobs that have ended, which are kept
	maxArguments = 64       // of a command, that are written down
	entrySuffix  = ".json"
	freshSuffix  = ".new" // of an entry that is being written
)

// registryDir is the folder of this user's entries. It is made where it is missing. A folder that others
// could write to is not used: they could send this user's commands to a service of theirs.
func registryDir() (string, error) {
	base := os.Getenv("XDG_RUNTIME_DIR")
	name := "serry"
	if base == "" {
		base, name = os.TempDir(), fmt.Sprintf("serry-%d", os.Getuid())
	}
	dir := filepath.Join(base, name)
	if err := os.Mkdir(dir, 0o700); err != nil && !errors.Is(err, fs.ErrExist) {
		return "", err
	}
	info, err := os.Lstat(dir)
	if err != nil {
		return "", err
	}
	owner, ok := info.Sys().(*syscall.Stat_t)
	if !info.IsDir() || info.Mode().Perm()&0o077 != 0 || !ok || int(owner.Uid) != os.Getuid() {
		return "", fmt.Errorf("%s: want a folder that no other user can look into", dir)
	}
	return dir, nil
}

// A registration is the entry of this process.
type registration struct {
	path string
	entry
	known *diagnose.Evidence // what the service knew when all tasks had ended, or nil
}

// register writes an entry down. A host on which that cannot be done runs the job all the same, so the
// error is for those who want to know.
func register(e entry) (*registration, error) {
	dir, err := registryDir()
	if err != nil {
		return &registration{}, err
	}
	forget(dir)
	e.Version, e.PID, e.Since = outputVersion, os.Getpid(), time.Now()
	e.Machine, e.Space = machine()
	e.Start, _ = startTime(e.PID) // empty where the system does not tell
	e.Dir, _ = os.Getwd()         // for people to read
	e.Command = e.Command[:min(len(e.Command), maxArguments)]
	r := &registration{path: filepath.Join(dir, fmt.Sprintf("%d-%s%s", e.PID, cmp.Or(e.Start, "0"), entrySuffix)), entry: e}
	return r, r.write()
}

// Serves notes where the service of a job is ([launch.Directory]).
func (r *registration) Serves(address string, attempt int) {
	if r.path == "" || address == r.Address && attempt == r.Attempt {
		return
	}
	r.Address, r.Attempt = address, attempt
	_ = r.write() // the job does not depend on it
}

// remove takes the entry back of what was never started.
func (r *registration) remove() {
	if r.path != "" {
		_ = os.Remove(r.path) // its process ends, and then it counts as killed
	}
}

// end notes how it has ended.
func (r *registration) end(how string) {
	if r.path == "" {
		return
	}
	r.Ended, r.End = time.Now(), how
	_ = r.write() // the job does not depend on it
}

// write replaces the file at once: a reader sees the old entry or the new one.
func (r *registration) write() error {
	text, err := json.Marshal(r.entry)
	if err != nil || len(text) > maxEntry {
		return errors.Join(err, fmt.Errorf("an entry of %d bytes", len(text)))
	}
	fresh := strings.TrimSuffix(r.path, entrySuffix) + freshSuffix
	if err := os.WriteFile(fresh, text, 0o600); err != nil {
		return err
	}
	return os.Rename(fresh, r.path)
}

// forget removes the entries of jobs that have ended but for the last few, and what is no entry.
func forget(dir string) {
	ended := 0
	for _, f := range readEntries(dir) {
		if f.err == nil && (f.running() || f.elsewhere()) {
			continue
		}
		_ = os.Remove(doorOf(f.path)) // its launcher was killed
		if ended++; ended >= maxEnded || f.err != nil {
			_ = os.Remove(f.path) // the next one tries again
			_ = os.Remove(lastOf(f.path))
		}
	}
	halves, _ := filepath.Glob(filepath.Join(dir, "*"+freshSuffix)) // the pattern is well formed
	for _, path := range halves {
		if info, err := os.Lstat(path); err == nil && time.Since(info.ModTime()) > time.Minute {
			_ = os.Remove(path) // its process was killed while it wrote
		}
	}
}

// A filed entry is one that was read.
type filed struct {
	entry
	path string
	err  error // it cannot be read
}

// readEntries reads all entries of a folder, those that began last first. What a file says is data: it may
// be of another version, half written, or nonsense.
func readEntries(dir string) []filed {
	d, err := os.Open(dir)
	if err != nil {
		return nil
	}
	defer d.Close()
	names, _ := d.Readdirnames(maxEntries) // as many as can be read
	var all []filed
	for _, name := range names {
		if strings.HasSuffix(name, entrySuffix) {
			f := filed{path: filepath.Join(dir, name)}
			f.entry, f.err = readEntry(f.path)
			all = append(all, f)
		}
	}
	slices.SortStableFunc(all, func(a, b filed) int { return b.Since.Compare(a.Since) })
	return all
}

func readEntry(path string) (entry, error) {
	var e entry
	f, err := os.OpenFile(path, os.O_RDONLY|syscall.O_NOFOLLOW|syscall.O_NONBLOCK, 0)
	if err != nil {
		return e, err
	}
	defer f.Close()
	text, err := io.ReadAll(io.LimitReader(f, maxEntry+1))
	switch {
	case err != nil:
		return e, err
	case len(text) > maxEntry:
		return e, fmt.Errorf("more than %d bytes", maxEntry)
	}
	if err := json.Unmarshal(text, &e); err != nil {
		return e, err
	}
	if e.Address != "" {
		e.Address, err = fullAddresses(e.Address)
	}
	if e.PID <= 0 || e.Kind != kindRun && e.Kind != kindServe {
		err = errors.New("no entry of a job")
	}
	return e, err
}

// running says whether the process of an entry lives.
func (e *entry) running() bool {
	if here, space := machine(); !e.Ended.IsZero() || e.Machine != here || e.Space != space {
		return false
	}
	start, err := startTime(e.PID)
	return err == nil && start == e.Start
}

// elsewhere says whether an entry is of another container that shares this folder. Process numbers mean
// something else there, so nothing can be said of it.
func (e *entry) elsewhere() bool {
	here, space := machine()
	return e.Ended.IsZero() && e.Machine == here && e.Space != space
}

// machine says between which two starts of which machine this is, and which processes are counted together.
func machine() (boot, space string) {
	text, _ := os.ReadFile("/proc/sys/kernel/random/boot_id") // the same for all where there is none
	space, _ = os.Readlink("/proc/self/ns/pid")
	return strings.TrimSpace(string(text)), space
}

// startField is where /proc/PID/stat has the start time, counted after the name.
const startField = 19

// startTime is when a process was started.
func startTime(pid int) (string, error) {
	stat, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return "", err
	}
	_, after, _ := strings.Cut(string(stat[max(0, strings.LastIndexByte(string(stat), ')')):]), ") ")
	fields := strings.Fields(after)
	if len(fields) <= startField || fields[0] == "Z" {
		return "", fs.ErrNotExist
	}
	return fields[startField], nil
}
