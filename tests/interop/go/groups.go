package main

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	partitions = 6
	written    = 120
	pollTime   = 100 * time.Millisecond
)

func (s *settings) groups() []check {
	eager, cooperative := kgo.Balancers(kgo.RangeBalancer()), kgo.Balancers(kgo.CooperativeStickyBalancer())
	come := func(options ...kgo.Opt) func() error { return func() error { return s.comeAndGo(options) } }
	return []check{
		{"groups: members come and go", come(eager)},
		{"groups: cooperative", come(cooperative)},
		{"groups: a regular expression", s.regularExpression},
		{"groups: group.protocol=consumer", come(eager, kgo.ServerSideBalancer())},
		{"groups: static members", s.staticMembers},
		{"groups: commits with metadata", s.commits},
		{"groups: the coordinator is killed", s.coordinatorIsKilled},
	}
}

// member is a consumer that is polled now and then, by the one goroutine there is.
type member struct {
	client      *kgo.Client
	lock        sync.Mutex
	assigned    map[int32]bool
	assignments int
	seen        map[string]bool
}

func (s *settings) join(topic string, options ...kgo.Opt) (*member, error) {
	m := &member{assigned: map[int32]bool{}, seen: map[string]bool{}}
	change := func(to bool) func(context.Context, *kgo.Client, map[string][]int32) {
		return func(_ context.Context, _ *kgo.Client, which map[string][]int32) { m.change(which[topic], to) }
	}
	gone := change(false)
	all := append([]kgo.Opt{
		kgo.ConsumerGroup(topic), kgo.ConsumeTopics(topic), kgo.DisableAutoCommit(), kgo.BlockRebalanceOnPoll(),
		kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.SessionTimeout(6 * time.Second),
		kgo.HeartbeatInterval(500 * time.Millisecond),
		kgo.OnPartitionsAssigned(change(true)), kgo.OnPartitionsRevoked(gone), kgo.OnPartitionsLost(gone),
	}, options...)
	client, err := s.client("plaintext", all...)
	m.client = client
	return m, err
}

func (m *member) change(which []int32, to bool) {
	m.lock.Lock()
	defer m.lock.Unlock()
	for _, partition := range which {
		m.assigned[partition] = to
	}
	maps.DeleteFunc(m.assigned, func(_ int32, has bool) bool { return !has })
	if to && len(which) > 0 {
		m.assignments++
	}
}

func (m *member) has() map[int32]bool {
	m.lock.Lock()
	defer m.lock.Unlock()
	return maps.Clone(m.assigned)
}

func (m *member) poll() error {
	ctx, cancel := context.WithTimeout(context.Background(), pollTime)
	defer cancel()
	records := m.client.PollFetches(ctx).Records()
	defer m.client.AllowRebalance()
	for _, record := range records {
		m.seen[fmt.Sprint(record.Partition, "/", record.Offset)] = true
	}
	if len(records) == 0 {
		return nil
	}
	inTime, end := context.WithTimeout(context.Background(), deadline)
	defer end()
	return m.client.CommitRecords(inTime, records...)
}

func until(members []*member, holds func() bool, what string) error {
	end := time.Now().Add(deadline)
	for !holds() {
		for _, each := range members {
			if err := each.poll(); err != nil {
				return fmt.Errorf("%s: commit: %w", what, err)
			}
		}
		if time.Now().After(end) {
			return errors.New("not in time: " + what)
		}
	}
	return nil
}

func divided(members ...*member) error {
	return until(members, func() bool {
		total := 0
		for _, each := range members {
			count := len(each.has())
			if count == 0 {
				return false
			}
			total += count
		}
		return total == partitions
	}, fmt.Sprint(len(members), " members share the partitions"))
}

func (s *settings) write(topic string) error {
	return s.within("plaintext", func(ctx context.Context, client *kgo.Client) error {
		return send(ctx, client, topic, partitions, written)
	}, kgo.RecordPartitioner(kgo.ManualPartitioner()))
}

func wantRead(total int, seen map[string]bool, members ...*member) error {
	return until(members, func() bool {
		for _, each := range members {
			maps.Copy(seen, each.seen)
		}
		return len(seen) == total
	}, fmt.Sprint(total, " records are read"))
}

func (s *settings) comeAndGo(options []kgo.Opt) error {
	topic, err := s.topic(partitions)
	if err != nil {
		return err
	}
	one, err1 := s.join(topic, options...)
	err = first(s.write(topic), err1, divided(one))
	two, err2 := s.join(topic, options...)
	seen := map[string]bool{}
	if err = first(err, err2, divided(one, two), s.write(topic), wantRead(2*written, seen, one, two)); err != nil {
		return err
	}
	one.client.CloseAllowingRebalance()
	err = first(divided(two), s.write(topic), wantRead(3*written, seen, two))
	two.client.CloseAllowingRebalance()
	last, err3 := s.join(topic, options...)
	if err := first(err, err3, s.write(topic), divided(last)); err != nil {
		return err
	}
	defer last.client.CloseAllowingRebalance()
	// What the others had committed does not come again.
	return first(wantRead(4*written, seen, last), same(written, len(last.seen)))
}

func (s *settings) regularExpression() error {
	topic, err := s.topic(partitions)
	if err != nil {
		return err
	}
	pattern := "^" + topic + "(-[0-9]+)?$"
	one, err := s.join(topic, kgo.ConsumeRegex(), kgo.ConsumeTopics(pattern))
	if err := first(err, s.write(topic), divided(one)); err != nil {
		return err
	}
	defer one.client.CloseAllowingRebalance()
	return wantRead(written, map[string]bool{}, one)
}

func (s *settings) staticMembers() error {
	topic, err := s.topic(partitions)
	if err != nil {
		return err
	}
	eager := kgo.Balancers(kgo.RangeBalancer())
	one, err1 := s.join(topic, eager, kgo.InstanceID("one"))
	two, err2 := s.join(topic, eager, kgo.InstanceID("two"))
	if err := first(err1, err2, divided(one, two)); err != nil {
		return err
	}
	had, assignments := two.has(), one.assignments
	two.client.CloseAllowingRebalance()
	again, err := s.join(topic, eager, kgo.InstanceID("two"))
	err = first(err, divided(one, again), same(true, maps.Equal(had, again.has())), same(assignments, one.assignments))
	one.client.CloseAllowingRebalance()
	again.client.CloseAllowingRebalance()
	return err
}

func (s *settings) commits() error {
	group, err := s.topic(partitions)
	if err != nil {
		return err
	}
	return s.within("plaintext", func(ctx context.Context, client *kgo.Client) error {
		admin := kadm.NewClient(client)
		before, err := admin.FetchOffsets(ctx, group)
		wanted := kadm.Offset{Topic: group, Partition: 3, At: 17, LeaderEpoch: -1, Metadata: "a note"}
		var offsets kadm.Offsets
		offsets.Add(wanted)
		err = first(err, same(0, len(before)), admin.CommitAllOffsets(ctx, group, offsets))
		after, err2 := admin.FetchOffsets(ctx, group)
		found, _ := after.Lookup(group, 3)
		return first(err, err2, same(int64(17), found.At), same("a note", found.Metadata))
	})
}

func (s *settings) coordinatorIsKilled() error {
	topic, err := s.topic(partitions)
	if err != nil {
		return err
	}
	one, err1 := s.join(topic)
	two, err2 := s.join(topic)
	seen := map[string]bool{}
	err = first(err1, err2, divided(one, two), s.write(topic), wantRead(written, seen, one, two))
	err = first(err, ask("kill the leader"))
	// Commits are sent to the node that is gone until another one coordinates; the client asks again by itself.
	err = first(err, s.write(topic), wantRead(2*written, seen, one, two))
	err = first(err, ask("start the node again"))
	one.client.CloseAllowingRebalance()
	two.client.CloseAllowingRebalance()
	return err
}
