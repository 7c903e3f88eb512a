package wire

import (
	"google.golang.org/protobuf/proto"

	"github.com/serry-dev/serry"
	"github.com/serry-dev/serry/coord"
	"github.com/serry-dev/serry/wire/tfpb"
)

// In this dialect a request names a task but, other than RegisterTask and Heartbeat, no life of it:
// that is known by the connection (C-INC-6). In a cluster of one job the name of the job does not
// matter, and replies repeat the one the caller used (C-VER-1).

// tfCall reads what is common to calls that name no task.
func (d *decoder) tfCall() coord.Call {
	call := coord.Call{Req: d.origin.Req, ID: d.origin.ID}
	if d.origin.Identify != nil {
		call.Incarnation, call.Service = d.origin.Identify(serry.TaskID{})
	}
	return call
}

// tfTaskCall reads what is common to calls of a task.
func (d *decoder) tfTaskCall(source *tfpb.CoordinatedTask) (coord.Call, error) {
	if err := d.tfCaller(source); err != nil {
		return coord.Call{}, err
	}
	call := coord.Call{Req: d.origin.Req, ID: d.origin.ID, Task: d.shape.task}
	if d.origin.Identify != nil {
		call.Incarnation, call.Service = d.origin.Identify(call.Task)
	}
	return call, nil
}

// tfCaller notes who calls, and by which name of the job.
func (d *decoder) tfCaller(source *tfpb.CoordinatedTask) error {
	if err := d.tfJobName(source.GetJobName()); err != nil {
		return err
	}
	d.shape.task = d.tfTask(source)
	return nil
}

// tfJobName notes the name that replies call the one job by.
func (d *decoder) tfJobName(name string) error {
	if err := checkName("job name", name); err != nil {
		return err
	}
	if d.shape.oneJob {
		d.shape.job = name
	}
	return nil
}

func (d *decoder) tfTask(t *tfpb.CoordinatedTask) serry.TaskID {
	task := serry.TaskID{Job: t.GetJobName(), Index: int(t.GetTaskId())}
	if d.shape.oneJob {
		task.Job = d.codec.jobs[0].Name
	}
	return task
}

func (d *decoder) tfTasks(list []*tfpb.CoordinatedTask) ([]serry.TaskID, error) {
	if len(list) == 0 {
		return nil, nil
	}
	tasks := make([]serry.TaskID, len(list))
	for i, t := range list {
		if err := checkName("job name", t.GetJobName()); err != nil {
			return nil, err
		}
		tasks[i] = d.tfTask(t)
	}
	return tasks, nil
}

func (d *decoder) tfRegister(m *tfpb.RegisterTaskRequest) (coord.Event, error) {
	if err := d.tfCaller(m.GetSourceTask()); err != nil {
		return nil, err
	}
	return coord.RegisterTask{
		Call: coord.Call{
			Req:         d.origin.Req,
			ID:          d.origin.ID,
			Task:        d.shape.task,
			Incarnation: serry.Incarnation(m.GetIncarnation()),
		},
		Recoverable: m.GetSourceTask().GetRecoverable(),
		Next:        d.origin.Next,
	}, nil
}

// tfHeartbeat takes the incarnation from the request. The epoch is that of the connection only where
// the connection knows this very incarnation.
func (d *decoder) tfHeartbeat(m *tfpb.HeartbeatRequest) (coord.Event, error) {
	call, err := d.tfTaskCall(m.GetSourceTask())
	if err != nil {
		return nil, err
	}
	if own := serry.Incarnation(m.GetIncarnation()); own != call.Incarnation {
		call.Incarnation, call.Service = own, 0
	}
	return coord.Heartbeat{Call: call}, nil
}

func (d *decoder) tfPoll(m *tfpb.PollForErrorRequest) (coord.Event, error) {
	call, err := d.tfTaskCall(m.GetSourceTask())
	return coord.PollForError{Call: call}, err
}

func (d *decoder) tfWaitAll(m *tfpb.WaitForAllTasksRequest) (coord.Event, error) {
	call, err := d.tfTaskCall(m.GetSourceTask())
	if err != nil {
		return nil, err
	}
	devices, err := proto.MarshalOptions{Deterministic: true}.Marshal(m.GetDeviceInfo())
	return coord.WaitForAllTasks{Call: call, Devices: devices}, err
}

func (d *decoder) tfShutdown(m *tfpb.ShutdownTaskRequest) (coord.Event, error) {
	call, err := d.tfTaskCall(m.GetSourceTask())
	return coord.ShutdownTask{Call: call, Recoverable: m.GetSourceTask().GetRecoverable()}, err
}

func (d *decoder) tfReset(m *tfpb.ResetTaskRequest) (coord.Event, error) {
	call, err := d.tfTaskCall(m.GetSourceTask())
	return coord.ResetTask{Call: call}, err
}

// tfReportToTask refuses: the method is for servers that run in tasks (C-ERR-5).
func (d *decoder) tfReportToTask([]byte) (coord.Event, error) { return nil, errNotATask }

func (d *decoder) tfReport(m *tfpb.ReportErrorToServiceRequest) (coord.Event, error) {
	call, err := d.tfTaskCall(m.GetErrorOrigin())
	return coord.ReportError{Call: call, Code: int(m.GetErrorCode()), Text: m.GetErrorMessage()}, err
}

func (d *decoder) tfTaskState(m *tfpb.GetTaskStateRequest) (coord.Event, error) {
	tasks, err := d.tfTasks(m.GetSourceTask())
	d.shape.asked = m
	return coord.GetTaskState{Call: d.tfCall(), Tasks: tasks}, err
}

// tfJobState is a watch that does not wait (C-GTS-2).
func (d *decoder) tfJobState(m *tfpb.GetJobStateRequest) (coord.Event, error) {
	return d.tfWatchJob(m.GetJobName(), -1)
}

func (d *decoder) tfWatch(m *tfpb.WatchJobStateRequest) (coord.Event, error) {
	return d.tfWatchJob(m.GetJobName(), m.GetVersionNumber())
}

// tfWatchJob asks for the job by name where there are several, else for all tasks.
func (d *decoder) tfWatchJob(job string, version int64) (coord.Event, error) {
	if err := d.tfJobName(job); err != nil {
		return nil, err
	}
	if d.shape.oneJob {
		job = ""
	}
	return coord.WatchTasks{Call: d.tfCall(), Version: version, Job: job}, nil
}

func (d *decoder) tfInsert(m *tfpb.InsertKeyValueRequest) (coord.Event, error) {
	return coord.InsertKeyValue{
		Call:      d.tfCall(),
		Key:       m.GetKv().GetKey(),
		Value:     m.GetKv().GetValue(),
		Overwrite: m.GetAllowOverwrite(),
	}, nil
}

func (d *decoder) tfBarrier(m *tfpb.BarrierRequest) (coord.Event, error) {
	if err := d.barrier(m.GetBarrierId(), m.GetCounter()); err != nil {
		return nil, err
	}
	call, err := d.tfTaskCall(m.GetSourceTask())
	if err != nil {
		return nil, err
	}
	tasks, err := d.tfTasks(m.GetTasks())
	return coord.Barrier{
		Call:        call,
		ID:          m.GetBarrierId(),
		Counter:     m.GetCounter(),
		Timeout:     millis(m.GetBarrierTimeoutInMs()),
		Tasks:       tasks,
		Recoverable: m.GetSourceTask().GetRecoverable(),
	}, err
}

func (d *decoder) tfCancel(m *tfpb.CancelBarrierRequest) (coord.Event, error) {
	if err := d.barrier(m.GetBarrierId(), m.GetCounter()); err != nil {
		return nil, err
	}
	call, err := d.tfTaskCall(m.GetSourceTask())
	return coord.CancelBarrier{Call: call, ID: m.GetBarrierId(), Counter: m.GetCounter()}, err
}

func (d *decoder) tfAlive(m *tfpb.GetAliveTasksRequest) (coord.Event, error) {
	call, err := d.tfTaskCall(m.GetRequestingTask())
	if err != nil {
		return nil, err
	}
	tasks, err := d.tfTasks(m.GetTasks())
	return coord.GetAliveTasks{Call: call, Tasks: tasks}, err
}
