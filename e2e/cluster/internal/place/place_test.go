package place

import (
	"errors"
	"strings"
	"testing"
)

func TestAClusterIsAliveWhileSomeoneHoldsItsLock(t *testing.T) {
	cluster, err := Cache{Root: t.TempDir()}.Cluster("one")
	if err != nil {
		t.Fatal(err)
	}
	if cluster.Alive() {
		t.Error("alive before it began")
	}
	lock, err := cluster.Lock()
	if err != nil {
		t.Fatal(err)
	}
	if _, err := cluster.Lock(); !errors.Is(err, ErrBusy) {
		t.Errorf("locked twice: %v", err)
	}
	if !cluster.Alive() {
		t.Error("not alive while it is locked")
	}
	lock.Close()
	if cluster.Alive() {
		t.Error("alive after its end")
	}
}

func TestNamesThatWouldLeaveTheFolderAreRefused(t *testing.T) {
	cache := Cache{Root: t.TempDir()}
	for _, name := range []string{"", "..", "a/b", "A", "a b", strings.Repeat("x", 21)} {
		if _, err := cache.Cluster(name); err == nil {
			t.Errorf("%q was accepted", name)
		}
	}
}
