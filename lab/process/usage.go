package process

import (
	"bytes"
	"errors"
	"fmt"
	"os"
	"strconv"
	"time"
)

const (
	// tick is the unit of times in /proc: the kernel shows hundredths of a second on every architecture.
	tick = 10 * time.Millisecond
	// userTime is the index of the user time after the name of the program; that of the system follows.
	userTime = 11
)

// CPU is the processor time that a process has used, all its threads together.
func CPU(pid int) (time.Duration, error) {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/stat")
	if err != nil {
		return 0, fmt.Errorf("reading the times of process %d: %w", pid, err)
	}

	// The name stands in parentheses and may hold anything.
	fields := bytes.Fields(content[bytes.LastIndexByte(content, ')')+1:])
	if len(fields) <= userTime+1 {
		return 0, fmt.Errorf("reading the times of process %d: %d fields", pid, len(fields))
	}

	var total time.Duration

	for _, field := range fields[userTime : userTime+2] {
		ticks, err := strconv.ParseInt(string(field), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the times of process %d: %w", pid, err)
		}

		total += time.Duration(ticks) * tick
	}

	return total, nil
}

// RSS is the memory of a process in bytes, RSSPeak the most that it has had since ResetRSSPeak.
func RSS(pid int) (int64, error) { return memory(pid, "VmRSS:") }

// RSSPeak is the most memory in bytes that a process has had since its start or ResetRSSPeak.
func RSSPeak(pid int) (int64, error) { return memory(pid, "VmHWM:") }

// ResetRSSPeak lets the peak begin at the memory that the process has now; see clear_refs in proc(5).
func ResetRSSPeak(pid int) error {
	if err := os.WriteFile("/proc/"+strconv.Itoa(pid)+"/clear_refs", []byte("5"), 0); err != nil {
		return fmt.Errorf("resetting the peak memory of process %d: %w", pid, err)
	}

	return nil
}

var errNoValue = errors.New("the kernel does not tell")

func memory(pid int, name string) (int64, error) {
	content, err := os.ReadFile("/proc/" + strconv.Itoa(pid) + "/status")
	if err != nil {
		return 0, fmt.Errorf("reading the memory of process %d: %w", pid, err)
	}

	for line := range bytes.Lines(content) {
		fields := bytes.Fields(line)
		if len(fields) < 2 || string(fields[0]) != name {
			continue
		}

		kib, err := strconv.ParseInt(string(fields[1]), 10, 64)
		if err != nil {
			return 0, fmt.Errorf("reading the memory of process %d: %w", pid, err)
		}

		return kib << 10, nil
	}

	return 0, fmt.Errorf("reading the memory of process %d: %w", pid, errNoValue)
}
