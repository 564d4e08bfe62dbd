package node

import (
	"fmt"
	"io"
	"net"
	"os"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"syscall"
	"time"
)

// Component is one long-running program.
type component struct {
	Name string
	Args []string // the program first
}

// How long a component that ended by itself stays down.
const restartDelay = time.Second

// Unit is a component and how it fares.
type unit struct {
	component
	pid      int
	wanted   bool // false: ended by request, not to be started again
	frozen   bool
	restarts int
	last     string // how it ended last
}

// Supervisor starts components, starts those again that end by themselves, and reaps every orphan of the namespace.
type supervisor struct {
	logs  string
	mutex sync.Mutex
	units []*unit
	leave func() // stops the reaping; there can be one supervisor in a process at a time
}

func newSupervisor(logs string) *supervisor {
	children, left := make(chan os.Signal, 1), make(chan struct{})
	s := &supervisor{logs: logs}
	s.leave = func() {
		signal.Stop(children)
		close(children)
		<-left
	}
	signal.Notify(children, syscall.SIGCHLD)
	go func() {
		defer close(left)
		for range children {
			s.reap()
		}
	}()
	return s
}

// Shims and containers that lose their parent become children of this process: every one of them is waited for, which
// is why nothing here may use exec.Cmd.Wait.
func (s *supervisor) reap() {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	for {
		var status syscall.WaitStatus
		pid, err := syscall.Wait4(-1, &status, syscall.WNOHANG, nil)
		if err == syscall.EINTR {
			continue
		}
		if err != nil || pid <= 0 {
			return
		}
		i := slices.IndexFunc(s.units, func(u *unit) bool { return u.pid == pid })
		if i < 0 {
			continue
		}
		u := s.units[i]
		u.pid, u.frozen, u.last = 0, false, describe(status)
		if u.wanted {
			u.restarts++
			fmt.Printf("%s ended by itself (%s), starts again in %s\n", u.Name, u.last, restartDelay)
			time.AfterFunc(restartDelay, func() {
				s.mutex.Lock()
				defer s.mutex.Unlock()
				if u.wanted && u.pid == 0 {
					s.launch(u)
				}
			})
		}
	}
}

func describe(status syscall.WaitStatus) string {
	if status.Signaled() {
		return "signal " + status.Signal().String()
	}
	return fmt.Sprintf("exit %d", status.ExitStatus())
}

func (s *supervisor) add(c component) {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	u := &unit{component: c, wanted: true}
	s.units = append(s.units, u)
	s.launch(u)
}

// With the mutex held, so that a process that ends at once is known when it is reaped.
func (s *supervisor) launch(u *unit) {
	fail := func(err error) {
		u.last = err.Error()
		fmt.Printf("%s cannot be started: %v\n", u.Name, err)
	}
	log, err := os.OpenFile(filepath.Join(s.logs, u.Name+".log"), os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		fail(err)
		return
	}
	defer log.Close()
	null, err := os.Open(os.DevNull)
	if err != nil {
		fail(err)
		return
	}
	defer null.Close()
	process, err := os.StartProcess(u.Args[0], u.Args, &os.ProcAttr{
		Dir: "/", Env: environment(), Files: []*os.File{null, log, log},
		Sys: &syscall.SysProcAttr{Setsid: true},
	})
	if err != nil {
		fail(err)
		return
	}
	u.pid = process.Pid
	_ = process.Release()
}

// The environment of the person who started the cluster is no business of its components (proxies least of all).
func environment() []string {
	return []string{"PATH=/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME=/", "LANG=C.UTF-8"}
}

// Order carries out what a drill asks for.
func (s *supervisor) order(name, what string) error {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	i := slices.IndexFunc(s.units, func(u *unit) bool { return u.Name == name })
	if i < 0 {
		return fmt.Errorf("no component %q in this cluster", name)
	}
	u := s.units[i]
	send := func(signal syscall.Signal) error {
		if u.pid == 0 {
			return fmt.Errorf("%s does not run", name)
		}
		return syscall.Kill(u.pid, signal)
	}
	switch what {
	case "stop": // as a crash would: SIGTERM makes some of them wait for their clients
		u.wanted = false
		if u.pid != 0 {
			return send(syscall.SIGKILL)
		}
	case "start":
		u.wanted = true
		if u.pid == 0 {
			s.launch(u)
		}
	case "kill": // and it comes back by itself
		u.wanted = true
		return send(syscall.SIGKILL)
	case "freeze":
		if err := send(syscall.SIGSTOP); err != nil {
			return err
		}
		u.frozen = true
	case "thaw":
		if err := send(syscall.SIGCONT); err != nil {
			return err
		}
		u.frozen = false
	default:
		return fmt.Errorf("unknown order %q", what)
	}
	return nil
}

// Health is one line of `cluster status`.
type Health struct {
	Name     string `json:"name"`
	State    string `json:"state"`
	PID      int    `json:"pid,omitempty"`
	Restarts int    `json:"restarts,omitempty"`
	Last     string `json:"last,omitempty"`
	PSSKiB   int64  `json:"pssKiB,omitempty"`
}

func (s *supervisor) health() []Health {
	s.mutex.Lock()
	defer s.mutex.Unlock()
	var all []Health
	for _, u := range s.units {
		h := Health{Name: u.Name, PID: u.pid, Restarts: u.restarts, Last: u.last, State: "running", PSSKiB: pss(u.pid)}
		switch {
		case u.pid == 0 && u.wanted:
			h.State = "restarting"
		case u.pid == 0:
			h.State = "stopped"
		case u.frozen:
			h.State = "frozen"
		}
		all = append(all, h)
	}
	return all
}

// The proportional share of memory of one process, 0 when it has ended.
func pss(pid int) int64 {
	if pid == 0 {
		return 0
	}
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/smaps_rollup", pid))
	if err != nil {
		return 0
	}
	for line := range strings.Lines(string(text)) {
		var kib int64
		if _, err := fmt.Sscanf(line, "Pss: %d kB", &kib); err == nil {
			return kib
		}
	}
	return 0
}

// Of all processes of the namespace: components, shims, containers.
func totalPSS() int64 {
	var total int64
	entries, _ := os.ReadDir("/proc")
	for _, entry := range entries {
		var pid int
		if _, err := fmt.Sscanf(entry.Name(), "%d", &pid); err == nil {
			total += pss(pid)
		}
	}
	return total
}

// Forward carries connections from a listener of the outer network namespace to an address of this one: a socket stays
// in the namespace in which it was made, whoever holds it.
func forward(listener net.Listener, to string) {
	for {
		outer, err := listener.Accept()
		if err != nil {
			fmt.Println("forwarding ends:", err)
			return
		}
		go func() {
			defer outer.Close()
			inner, err := net.Dial("tcp", to)
			if err != nil {
				return // the caller sees a closed connection, as from a server that is down
			}
			defer inner.Close()
			done := make(chan struct{})
			go func() {
				_, _ = io.Copy(inner, outer)
				_ = inner.(*net.TCPConn).CloseWrite()
				close(done)
			}()
			_, _ = io.Copy(outer, inner)
			_ = outer.(*net.TCPConn).CloseWrite()
			<-done
		}()
	}
}
