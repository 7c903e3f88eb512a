package slurm

import (
	"bytes"
	"crypto/rand"
	_ "embed"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"text/template"
)

const nodes = 4

// configuration is that of Slurm: a template over the folder of the cluster and the name of this machine.
//
//go:embed testdata/slurm.conf
var configuration string

// startSlurm makes the namespaces of this process a cluster, whose files are in a folder.
func startSlurm(dir string) error {
	if err := os.Setenv("PATH", os.Getenv("PATH")+":/usr/sbin:/sbin"); err != nil {
		return err
	}
	if err := openNetwork(dir); err != nil {
		return err
	}
	if err := configure(dir); err != nil {
		return err
	}
	munge := filepath.Join(dir, "munge")
	daemons := [][]string{
		{"munged", "--foreground", "--force", "--num-threads=2", "--key-file=" + munge + "/key", "--socket=" + munge + "/socket",
			"--pid-file=" + munge + "/pid", "--log-file=" + munge + "/log", "--seed-file=" + munge + "/seed"},
		{"slurmctld", "-D"},
	}
	for i := range nodes {
		daemons = append(daemons, []string{"slurmd", "-D", "-N", fmt.Sprintf("n%d", i+1)})
	}
	for _, d := range daemons {
		if err := start(dir, d); err != nil {
			return err
		}
	}
	return await("all nodes are idle", func() bool {
		n, err := said("sinfo", "--noheader", "--states=idle", "--format=%D")
		return err == nil && n == fmt.Sprint(nodes)
	})
}

// openNetwork mounts a /proc for the processes of this namespace, and gives each node a name and an address.
func openNetwork(dir string) error {
	if err := syscall.Mount("", "/", "", syscall.MS_REC|syscall.MS_PRIVATE, ""); err != nil {
		return fmt.Errorf("mount: %w", err)
	}
	if err := syscall.Mount("proc", "/proc", "proc", 0, ""); err != nil {
		return fmt.Errorf("mount /proc: %w", err)
	}
	machine, err := os.Hostname()
	if err != nil {
		return err
	}
	names := fmt.Sprintf("127.0.0.1 localhost %s\n", machine)
	commands := [][]string{{"ip", "link", "set", "lo", "up"}}
	for i := range nodes {
		commands = append(commands, []string{"ip", "address", "add", fmt.Sprintf("10.213.1.%d/32", i+1), "dev", "lo"})
		names += fmt.Sprintf("10.213.1.%d n%d\n", i+1, i+1)
	}
	for _, c := range commands {
		if _, err := said(c...); err != nil {
			return err
		}
	}
	hosts := filepath.Join(dir, "hosts")
	if err := os.WriteFile(hosts, []byte(names), 0o644); err != nil {
		return err
	}
	return syscall.Mount(hosts, "/etc/hosts", "", syscall.MS_BIND, "")
}

// configure writes the configuration of Slurm and the key by which its daemons know each other.
func configure(dir string) error {
	machine, err := os.Hostname()
	if err != nil {
		return err
	}
	var text bytes.Buffer
	if err := template.Must(template.New("").Parse(configuration)).Execute(&text, struct{ Dir, Machine string }{dir, machine}); err != nil {
		return err
	}
	for _, name := range []string{"munge", "state"} {
		if err := os.Mkdir(filepath.Join(dir, name), 0o755); err != nil {
			return err
		}
	}
	key := make([]byte, 128)
	rand.Read(key) // never fails
	path := filepath.Join(dir, "slurm.conf")
	for _, err := range []error{
		os.WriteFile(path, text.Bytes(), 0o644),
		os.WriteFile(filepath.Join(dir, "munge", "key"), key, 0o400),
		os.Chmod(dir, 0o755), // munge wants that all can reach its socket
		os.Setenv("SLURM_CONF", path),
		os.Setenv("XDG_RUNTIME_DIR", dir), // the jobs of these tests are not in the list of this user
	} {
		if err != nil {
			return err
		}
	}
	return nil
}

// start starts a daemon, which ends with the namespace.
func start(dir string, command []string) error {
	log, err := os.Create(filepath.Join(dir, strings.Join(command[:1], "")+"-"+filepath.Base(command[len(command)-1])+".out"))
	if err != nil {
		return err
	}
	defer log.Close()
	cmd := exec.Command(command[0], command[1:]...)
	cmd.Stdout, cmd.Stderr = log, log
	return cmd.Start()
}
