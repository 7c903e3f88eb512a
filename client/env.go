package client

import (
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"

	"github.com/serry-dev/serry"
)

// ConfigFromEnv is the place of this process in its job, as serry run has put it into the
// environment: SERRY_ADDRESS, SERRY_TASK and SERRY_HEARTBEAT_TIMEOUT. tasks is how many there are
// (SERRY_TASKS).
func ConfigFromEnv() (cfg Config, tasks int, err error) {
	cfg.Address = os.Getenv("SERRY_ADDRESS")
	if cfg.Address == "" {
		return Config{}, 0, errors.New("SERRY_ADDRESS is not set: this program is to be started by serry run")
	}
	task, err := numberFromEnv("SERRY_TASK")
	if err != nil {
		return Config{}, 0, err
	}
	if tasks, err = numberFromEnv("SERRY_TASKS"); err != nil {
		return Config{}, 0, err
	}
	if task < 0 || task >= tasks {
		return Config{}, 0, fmt.Errorf("SERRY_TASK is %d of SERRY_TASKS %d: want 0 to %d", task, tasks, tasks-1)
	}
	cfg.Dialect = Serry // what has started us serves it
	cfg.Task = serry.TaskID{Index: task}
	if text := os.Getenv("SERRY_HEARTBEAT_TIMEOUT"); text != "" {
		if cfg.HeartbeatTimeout, err = time.ParseDuration(text); err != nil {
			return Config{}, 0, fmt.Errorf("SERRY_HEARTBEAT_TIMEOUT: %w", err)
		}
	}
	return cfg.withDefaults(), tasks, nil
}

func numberFromEnv(name string) (int, error) {
	n, err := strconv.Atoi(os.Getenv(name))
	if err != nil {
		return 0, fmt.Errorf("%s: want a number, have %q", name, os.Getenv(name))
	}
	return n, nil
}
