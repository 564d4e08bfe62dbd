package node

import (
	"fmt"
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func eventually(t *testing.T, what string, check func() bool) {
	t.Helper()
	for end := time.Now().Add(10 * time.Second); !check(); time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatalf("not within 10 s: %s", what)
		}
	}
}

func only(s *supervisor) Health { return s.health()[0] }

func TestAComponentThatEndsIsStartedAgainUnlessItWasStopped(t *testing.T) {
	s := newSupervisor(t.TempDir())
	defer s.leave()
	s.add(component{Name: "sleeper", Args: []string{"/bin/sleep", "1000"}})
	first := only(s)
	if first.State != "running" || first.PID == 0 {
		t.Fatalf("%+v", first)
	}
	if err := s.order("sleeper", "kill"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it runs again", func() bool { h := only(s); return h.State == "running" && h.PID != first.PID })
	if h := only(s); h.Restarts != 1 || h.Last != "signal killed" {
		t.Errorf("%+v", h)
	}
	if err := s.order("sleeper", "freeze"); err != nil || only(s).State != "frozen" {
		t.Errorf("%v %+v", err, only(s))
	}
	if err := s.order("sleeper", "thaw"); err != nil || only(s).State != "running" {
		t.Errorf("%v %+v", err, only(s))
	}
	if err := s.order("sleeper", "stop"); err != nil {
		t.Fatal(err)
	}
	eventually(t, "it is stopped", func() bool { return only(s).State == "stopped" })
	if err := s.order("sleeper", "kill"); err == nil {
		t.Error("a component that does not run was killed")
	}
	if err := s.order("sleeper", "start"); err != nil || only(s).State != "running" {
		t.Errorf("%v %+v", err, only(s))
	}
	if err := s.order("nobody", "stop"); err == nil {
		t.Error("an unknown component was stopped")
	}
	_ = s.order("sleeper", "stop")
	eventually(t, "it is stopped at the end", func() bool { return only(s).State == "stopped" })
}

func TestTheLogOfAComponentHasWhatEveryStartOfItPrinted(t *testing.T) {
	logs := t.TempDir()
	s := newSupervisor(logs)
	defer s.leave()
	s.add(component{Name: "talker", Args: []string{"/bin/sh", "-c", "echo said; exit 3"}})
	eventually(t, "it was started again", func() bool { return only(s).Restarts >= 2 })
	if h := only(s); h.Last != "exit 3" {
		t.Errorf("%+v", h)
	}
	_ = s.order("talker", "stop")
	eventually(t, "it is stopped", func() bool { return only(s).State == "stopped" })
	text, err := os.ReadFile(filepath.Join(logs, "talker.log"))
	if err != nil || strings.Count(string(text), "said\n") < 2 {
		t.Errorf("%q %v", text, err)
	}
}

func TestAForwardedConnectionEndsWithItsOtherSide(t *testing.T) {
	inner, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go func() {
		for {
			peer, err := inner.Accept()
			if err != nil {
				return
			}
			fmt.Fprint(peer, "hello")
			peer.Close()
		}
	}()
	outer, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	go forward(outer, inner.Addr().String())
	read := func() string {
		peer, err := net.Dial("tcp", outer.Addr().String())
		if err != nil {
			t.Fatal(err)
		}
		defer peer.Close()
		_ = peer.SetDeadline(time.Now().Add(10 * time.Second))
		buffer := make([]byte, 16)
		n, _ := peer.Read(buffer)
		if _, err := peer.Read(buffer[n:]); err == nil || os.IsTimeout(err) {
			t.Error("the connection stays open:", err)
		}
		return string(buffer[:n])
	}
	if got := read(); got != "hello" {
		t.Errorf("%q", got)
	}
	inner.Close()
	if got := read(); got != "" { // the server is down: closed, not stuck
		t.Errorf("%q", got)
	}
}
