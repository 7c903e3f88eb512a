package client

import (
	"testing"
	"time"

	"github.com/serry-dev/serry"
)

func TestConfigFromEnv(t *testing.T) {
	set := func(t *testing.T, address, task, tasks, beat string) {
		t.Setenv("SERRY_ADDRESS", address)
		t.Setenv("SERRY_TASK", task)
		t.Setenv("SERRY_TASKS", tasks)
		t.Setenv("SERRY_HEARTBEAT_TIMEOUT", beat)
	}
	t.Run("all there", func(t *testing.T) {
		set(t, "localhost:1", "2", "4", "7s")
		cfg, tasks, err := ConfigFromEnv()
		if err != nil || tasks != 4 || cfg.Address != "localhost:1" || cfg.HeartbeatTimeout != 7*time.Second ||
			cfg.Task != (serry.TaskID{Job: "worker", Index: 2}) {
			t.Errorf("ConfigFromEnv() = %+v, %d, %v; want task worker/2 of 4 at localhost:1, timeout 7s", cfg, tasks, err)
		}
	})
	for name, env := range map[string][4]string{
		"no address":     {"", "0", "1", ""},
		"no task":        {"localhost:1", "", "1", ""},
		"no tasks":       {"localhost:1", "0", "", ""},
		"task too large": {"localhost:1", "4", "4", ""},
		"negative task":  {"localhost:1", "-1", "4", ""},
		"no duration":    {"localhost:1", "0", "1", "soon"},
	} {
		t.Run(name, func(t *testing.T) {
			set(t, env[0], env[1], env[2], env[3])
			if cfg, _, err := ConfigFromEnv(); err == nil {
				t.Errorf("ConfigFromEnv() = %+v; want an error", cfg)
			}
		})
	}
}
