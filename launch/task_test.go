package launch

import (
	"bufio"
	"context"
	"fmt"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"strconv"
	"strings"
	"syscall"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/client"
)

// socket is where a task finds the test that it takes its commands from.
const socket = "LAUNCH_TEST_SOCKET"

// A puppet is a task that does what a test tells it, one command a line, and answers each with a line.
type puppet struct {
	out    net.Conn
	member *client.Member
}

// beTask is the main function of a puppet. It ends when the test goes.
func beTask() int {
	c, err := net.Dial("unix", os.Getenv(socket))
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		return 99
	}
	fmt.Fprintf(c, "%s %s %s %d\n", os.Getenv(EnvTask), os.Getenv(EnvAttempt), os.Getenv(EnvLife), os.Getpid())
	p := &puppet{out: c}
	for lines := bufio.NewScanner(c); lines.Scan(); {
		verb, argument, _ := strings.Cut(lines.Text(), " ")
		number, _ := strconv.Atoi(argument)
		if verb == "exit" {
			return number
		}
		fmt.Fprintln(c, strings.ReplaceAll(p.do(verb, argument, number), "\n", " "))
	}
	return 98
}

func (p *puppet) do(verb, argument string, number int) string {
	var err error
	switch verb {
	case "signal": // itself
		syscall.Kill(os.Getpid(), syscall.Signal(number))
		select {}
	case "print":
		fmt.Println(argument)
	case "complain":
		fmt.Fprintln(os.Stderr, argument)
	case "long":
		os.Stdout.WriteString(strings.Repeat("x", number) + "\n")
	case "ignore":
		signal.Ignore(syscall.Signal(number))
	case "await": // a signal
		got := make(chan os.Signal, 1)
		signal.Notify(got, syscall.Signal(number))
		fmt.Fprintln(p.out, "waiting")
		return (<-got).String()
	case "fork", "daemon":
		err = beget(verb == "daemon")
	case "orphans": // two that end at once, in our group and out of it
		err = exec.Command("sh", "-c", "true & setsid true &").Run()
	case "env":
		return os.Getenv(argument)
	case "join":
		var cfg client.Config
		if cfg, _, err = client.ConfigFromEnv(); err == nil {
			p.member, err = client.Join(context.Background(), cfg)
		}
	case "barrier":
		err = p.member.Barrier(context.Background(), argument, serry.BarrierOptions{})
	case "leave":
		err = p.member.Leave(context.Background())
	case "fault":
		<-p.member.Context().Done()
		err = p.member.Err()
	default:
		return "no such command: " + verb
	}
	if err != nil {
		return err.Error()
	}
	return "ok"
}

// beget starts another puppet that lives on without us: in our group and with our output, or in a
// session of its own and without.
func beget(daemon bool) error {
	cmd := exec.Command(itself[0])
	if daemon {
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	} else {
		cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	}
	return cmd.Start()
}
