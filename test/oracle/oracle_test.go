package oracle_test

import (
	"testing"

	"github.com/talos-operator/talos-operator/test/oracle"
)

// fleet has n voting members on machines a, b, c, ..., all of which hold the last write, and an empty machine z.
func fleet(n int) oracle.Truth {
	e := oracle.Etcd{ID: 1, Acknowledged: 9}
	t := oracle.Truth{Disks: []oracle.Disk{{Machine: "z", Known: true}}}

	for i := range n {
		id := uint64(i + 1)
		e.Members = append(e.Members, oracle.Member{ID: id})
		t.Disks = append(t.Disks, oracle.Disk{
			Machine: string(rune('a' + i)), Etcd: 1, Member: id, Index: 9, Serving: true, Known: true,
		})
	}

	t.Etcds = []oracle.Etcd{e}

	return t
}

func change(t oracle.Truth, machine string, f func(*oracle.Disk)) {
	for i := range t.Disks {
		if t.Disks[i].Machine == machine {
			f(&t.Disks[i])
		}
	}
}

// down: a fault took the machine away at a moment.
func down(t oracle.Truth, machine string, at int64) {
	change(t, machine, func(d *oracle.Disk) { d.Serving, d.Faulted = false, at })
}

func gone(t oracle.Truth, machine string) {
	change(t, machine, func(d *oracle.Disk) { *d = oracle.Disk{Machine: d.Machine, Known: true} })
}

func lose(t oracle.Truth, machine string) {
	change(t, machine, func(d *oracle.Disk) { d.Lost = true })
}

// TestJudge: every rule finds the violations that are seeded here, and nothing else.
func TestJudge(t *testing.T) {
	reboot := func(machine string) oracle.Act {
		return oracle.Act{Kind: oracle.Reboot, Machine: machine, Evidence: 100}
	}
	remove := func(member uint64) oracle.Act {
		return oracle.Act{Kind: oracle.Remove, Etcd: 1, Member: member, Evidence: 100}
	}
	found := oracle.Act{Kind: oracle.Found, Machine: "z"}
	word := oracle.Act{Kind: oracle.Found, Machine: "z", Word: true}

	for name, tc := range map[string]struct {
		size   int
		change func(oracle.Truth)
		act    oracle.Act
		away   []string
		want   oracle.Rule
	}{
		"reboot one of three":                      {size: 3, act: reboot("a")},
		"reboot the only one":                      {size: 1, act: reboot("a")},
		"reboot one of two":                        {size: 2, act: reboot("a")},
		"reboot an empty machine":                  {size: 3, act: reboot("z")},
		"reboot while another one is dead":         {size: 3, change: func(t oracle.Truth) { down(t, "b", 50) }, act: reboot("a"), want: oracle.Quorum},
		"reboot while another one dies":            {size: 3, change: func(t oracle.Truth) { down(t, "b", 100) }, act: reboot("a")},
		"reboot while another one is taken away":   {size: 3, change: func(t oracle.Truth) { down(t, "b", 0) }, act: reboot("a"), away: []string{"b"}, want: oracle.Quorum},
		"reboot while another one loses its disk":  {size: 3, change: func(t oracle.Truth) { down(t, "b", 100); lose(t, "b") }, act: reboot("a")},
		"a new etcd after a disk was lost":         {size: 1, change: func(t oracle.Truth) { down(t, "a", 50); lose(t, "a") }, act: found},
		"reboot while a member begins to vote":     {size: 4, change: func(t oracle.Truth) { down(t, "b", 50); t.Etcds[0].Members[1].Voting = 100 }, act: reboot("a")},
		"reboot after a member began to vote":      {size: 4, change: func(t oracle.Truth) { down(t, "b", 50); t.Etcds[0].Members[1].Voting = 99 }, act: reboot("a"), want: oracle.Quorum},
		"reboot the dead one":                      {size: 3, change: func(t oracle.Truth) { down(t, "a", 50) }, act: reboot("a")},
		"reboot without quorum":                    {size: 3, change: func(t oracle.Truth) { down(t, "a", 50); down(t, "b", 50) }, act: reboot("c")},
		"reboot of five while one is away":         {size: 5, change: func(t oracle.Truth) { down(t, "b", 0) }, act: reboot("a"), away: []string{"b"}, want: oracle.Alone},
		"reboot again what is away":                {size: 5, change: func(t oracle.Truth) { down(t, "b", 0) }, act: reboot("b"), away: []string{"b"}},
		"reboot the dead one while one is away":    {size: 5, change: func(t oracle.Truth) { down(t, "a", 50); down(t, "b", 0) }, act: reboot("a"), away: []string{"b"}},
		"reboot while an empty machine is away":    {size: 5, act: reboot("a"), away: []string{"z"}},
		"reboot a learner":                         {size: 3, change: func(t oracle.Truth) { t.Etcds[0].Members[0].Learner = true }, act: reboot("a")},
		"reboot the second voter beside a learner": {size: 3, change: func(t oracle.Truth) { t.Etcds[0].Members[0].Learner = true; down(t, "b", 50) }, act: reboot("c")},
		"remove one of three":                      {size: 3, act: remove(1)},
		"remove a dead one of three":               {size: 3, change: func(t oracle.Truth) { down(t, "b", 50) }, act: remove(2)},
		"remove a working one instead":             {size: 3, change: func(t oracle.Truth) { down(t, "b", 50) }, act: remove(1), want: oracle.Quorum},
		"remove one of two":                        {size: 2, act: remove(1)},
		"remove the last one":                      {size: 1, act: remove(1), want: oracle.Wipe},
		"remove who is not on the list":            {size: 3, act: remove(7)},
		"remove from no etcd":                      {size: 3, act: oracle.Act{Kind: oracle.Remove, Etcd: 4, Member: 1}},
		"remove a dead one while one is away":      {size: 5, change: func(t oracle.Truth) { down(t, "a", 50); down(t, "b", 0) }, act: remove(1), away: []string{"b"}},
		"remove a working one while one is away":   {size: 5, change: func(t oracle.Truth) { down(t, "b", 0) }, act: remove(1), away: []string{"b"}, want: oracle.Alone},
		"replace a member while one is away":       {size: 5, change: func(t oracle.Truth) { down(t, "b", 0) }, act: oracle.Act{Kind: oracle.Remove, Etcd: 1, Member: 1, Replace: true}, away: []string{"b"}},
		"wipe an empty machine":                    {size: 3, act: oracle.Act{Kind: oracle.WipeDisk, Machine: "z"}},
		"wipe a member":                            {size: 3, act: oracle.Act{Kind: oracle.WipeDisk, Machine: "a"}, want: oracle.Wipe},
		"wipe a member that does not run":          {size: 3, change: func(t oracle.Truth) { down(t, "a", 50) }, act: oracle.Act{Kind: oracle.WipeDisk, Machine: "a"}, want: oracle.Wipe},
		"wipe a learner":                           {size: 3, change: func(t oracle.Truth) { t.Etcds[0].Members[0].Learner = true }, act: oracle.Act{Kind: oracle.WipeDisk, Machine: "a"}},
		"wipe a learner that has the last copy": {size: 3, change: func(t oracle.Truth) {
			t.Etcds[0].Members[0].Learner = true

			lose(t, "b")
			lose(t, "c")
		}, act: oracle.Act{Kind: oracle.WipeDisk, Machine: "a"}, want: oracle.Wipe},
		"wipe one that was removed":             {size: 3, change: func(t oracle.Truth) { t.Etcds[0].Members = t.Etcds[0].Members[1:] }, act: oracle.Act{Kind: oracle.WipeDisk, Machine: "a"}},
		"the first etcd":                        {size: 0, act: found},
		"a second etcd":                         {size: 3, act: found, want: oracle.Split},
		"a second etcd beside a dead disk":      {size: 1, change: func(t oracle.Truth) { down(t, "a", 50) }, act: found, want: oracle.Split},
		"a second etcd that is allowed":         {size: 3, act: word, want: oracle.Split},
		"an allowed one beside an unknown disk": {size: 1, change: func(t oracle.Truth) { change(t, "a", func(d *oracle.Disk) { d.Known = false }) }, act: word},
		"one beside an unknown disk":            {size: 1, change: func(t oracle.Truth) { change(t, "a", func(d *oracle.Disk) { d.Known = false }) }, act: found, want: oracle.Split},
		"a new etcd after all disks were lost":  {size: 1, change: func(t oracle.Truth) { gone(t, "a") }, act: found},
	} {
		truth := fleet(tc.size)
		if tc.change != nil {
			tc.change(truth)
		}

		expect(t, name, oracle.Judge(truth, tc.act, tc.away), tc.want)
	}
}

// TestWatch: two etcds that serve, and writes that are missing, are found; what does not serve is no violation yet.
func TestWatch(t *testing.T) {
	second := func(t *oracle.Truth, serving bool) {
		t.Etcds = append(t.Etcds, oracle.Etcd{ID: 2, Members: []oracle.Member{{ID: 9}}})
		t.Disks[0] = oracle.Disk{Machine: "z", Etcd: 2, Member: 9, Serving: serving}
	}
	old := func(t oracle.Truth, machines ...string) {
		for _, m := range machines {
			change(t, m, func(d *oracle.Disk) { d.Index = 8 })
		}
	}

	for name, tc := range map[string]struct {
		change         func(*oracle.Truth)
		watch, settled oracle.Rule
	}{
		"well":                              {change: func(*oracle.Truth) {}},
		"two etcds":                         {func(t *oracle.Truth) { second(t, true) }, oracle.Split, oracle.Split},
		"a second one that does not serve":  {change: func(t *oracle.Truth) { second(t, false) }},
		"a second one beside a lost quorum": {change: func(t *oracle.Truth) { second(t, true); down(*t, "a", 5); down(*t, "b", 5) }},
		"one lags":                          {change: func(t *oracle.Truth) { old(*t, "a") }},
		"all lag":                           {func(t *oracle.Truth) { old(*t, "a", "b", "c") }, oracle.Writes, oracle.Writes},
		"those that serve lag":              {func(t *oracle.Truth) { old(*t, "a", "b"); down(*t, "c", 5) }, oracle.Writes, oracle.Writes},
		"the disks are gone":                {func(t *oracle.Truth) { gone(*t, "a"); gone(*t, "b"); gone(*t, "c") }, "", oracle.Writes},
		"the disks were destroyed":          {change: func(t *oracle.Truth) { gone(*t, "a"); gone(*t, "b"); gone(*t, "c"); t.Etcds[0].Destroyed = true }},
		"the only one with the last write":  {change: func(t *oracle.Truth) { old(*t, "a", "b"); down(*t, "b", 5) }},
		"the last write is on no listed disk": {func(t *oracle.Truth) {
			down(*t, "a", 5)
			down(*t, "b", 5)
			t.Etcds[0].Members = []oracle.Member{{ID: 8}, {ID: 9}}
		}, "", oracle.Writes},
		"a learner does not make up for votes": {change: func(t *oracle.Truth) { t.Etcds[0].Members[2].Learner = true; down(*t, "a", 5); second(t, true) }},
	} {
		truth := fleet(3)
		tc.change(&truth)

		expect(t, name, oracle.Watch(truth), tc.watch)
		expect(t, name+", settled", oracle.Settled(truth), tc.settled)
	}
}

func expect(t *testing.T, name string, got []oracle.Violation, want oracle.Rule) {
	t.Helper()

	found := want == "" && len(got) == 0

	for _, v := range got {
		found = found || v.Rule == want && v.Message != ""
	}

	if !found {
		t.Errorf("%s: got %v, want %q", name, got, want)
	}
}
