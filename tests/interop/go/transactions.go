package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	transactions = 40
	keys         = 3
)

func (s *settings) transactions() []check {
	return []check{
		{"transactions: committed, aborted", s.committed},
		{"transactions: a group's offsets", s.groupOffsets},
		{"transactions: fencing", s.fencing},
		{"transactions: the leader is killed", s.transactionsOverFailure},
		{"compacted topics", s.compacted},
	}
}

// inTransaction sends one value, and commits or aborts it.
func inTransaction(
	ctx context.Context, client *kgo.Client, topic, value string, end kgo.TransactionEndTry,
) error {
	if err := client.BeginTransaction(); err != nil {
		return err
	}
	record := &kgo.Record{Topic: topic, Value: []byte(value)}
	return first(client.ProduceSync(ctx, record).FirstErr(), client.EndTransaction(ctx, end))
}

// wantCommitted wants 0, 1, … in a topic's one partition, and nothing else that is committed.
func (s *settings) wantCommitted(topic string, count int) error {
	return s.wantNumbers("plaintext", topic, count, kgo.FetchIsolationLevel(kgo.ReadCommitted()))
}

func (s *settings) committed() error {
	topic, err := s.topic(1)
	if err != nil {
		return err
	}
	err = s.within("plaintext", func(ctx context.Context, client *kgo.Client) error {
		for number := range transactions {
			err := first(
				inTransaction(ctx, client, topic, "aborted", kgo.TryAbort),
				inTransaction(ctx, client, topic, fmt.Sprint(number), kgo.TryCommit))
			if err != nil {
				return err
			}
		}
		return nil
	}, kgo.TransactionalID(topic))
	return first(err, s.wantCommitted(topic, transactions))
}

// groupOffsets copies a topic in many short sessions; each aborts its last transaction.
func (s *settings) groupOffsets() error {
	source, err := s.topic(1)
	if err != nil {
		return err
	}
	sink, err := s.topic(1)
	if err != nil {
		return err
	}
	err = s.within("plaintext", func(ctx context.Context, client *kgo.Client) error {
		return send(ctx, client, source, 1, transactions)
	}, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	for done := 0; err == nil && done < transactions; {
		var moved int
		moved, err = s.copySome(source, sink, transactions-done)
		done += moved
	}
	return first(err, s.wantCommitted(sink, transactions))
}

func (s *settings) copySome(source, sink string, left int) (int, error) {
	session, err := kgo.NewGroupTransactSession(
		kgo.SeedBrokers(strings.Split(s.given["plaintext"], ",")...), kgo.TransactionalID(source),
		kgo.ConsumerGroup(sink), kgo.ConsumeTopics(source), kgo.RequireStableFetchOffsets(),
		kgo.FetchIsolationLevel(kgo.ReadCommitted()), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()))
	if err != nil {
		return 0, err
	}
	defer session.Close()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	moved, err := move(ctx, session, sink, kgo.TryCommit)
	if err == nil && moved < left {
		_, err = move(ctx, session, sink, kgo.TryAbort)
	}
	return moved, err
}

// move copies at most seven records in one transaction: how many.
func move(
	ctx context.Context, session *kgo.GroupTransactSession, sink string, end kgo.TransactionEndTry,
) (int, error) {
	fetches := session.PollRecords(ctx, 7)
	err := first(fetches.Err0(), session.Begin())
	if err != nil {
		return 0, err
	}
	for _, record := range fetches.Records() {
		session.Produce(ctx, &kgo.Record{Topic: sink, Value: record.Value}, nil)
	}
	kept, err := session.End(ctx, end)
	if !kept {
		return 0, err
	}
	return len(fetches.Records()), err
}

func (s *settings) fencing() error {
	topic, err := s.topic(1)
	if err != nil {
		return err
	}
	id := kgo.TransactionalID(topic)
	err = s.within("plaintext", func(ctx context.Context, older *kgo.Client) error {
		err := first(older.BeginTransaction(),
			older.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("lost")}).FirstErr())
		if err != nil {
			return err
		}
		err = s.within("plaintext", func(ctx context.Context, newer *kgo.Client) error {
			return inTransaction(ctx, newer, topic, "0", kgo.TryCommit)
		}, id)
		refused := older.EndTransaction(ctx, kgo.TryCommit)
		fenced := errors.Is(refused, kerr.ProducerFenced) || errors.Is(refused, kerr.InvalidProducerEpoch)
		return first(err, same(true, fenced))
	}, id)
	return first(err, s.wantCommitted(topic, 1))
}

func (s *settings) transactionsOverFailure() error {
	topic, err := s.topic(1)
	if err != nil {
		return err
	}
	err = s.within("plaintext", func(ctx context.Context, client *kgo.Client) error {
		for number := range transactions {
			if number == transactions/2 {
				if err := ask("kill the leader"); err != nil {
					return err
				}
			}
			if err := inTransaction(ctx, client, topic, fmt.Sprint(number), kgo.TryCommit); err != nil {
				return err
			}
		}
		return nil
	}, kgo.TransactionalID(topic))
	return first(err, ask("start the node again"), s.wantCommitted(topic, transactions))
}

func (s *settings) compacted() error {
	topic := "open-go-compacted"
	policy, size, ratio := "compact", "65536", "0"
	err := s.within("plaintext", func(ctx context.Context, client *kgo.Client) error {
		given := map[string]*string{
			"cleanup.policy": &policy, "segment.bytes": &size, "min.cleanable.dirty.ratio": &ratio,
		}
		_, err := kadm.NewClient(client).CreateTopic(ctx, 1, everywhere, given, topic)
		return first(err, writeKeyed(ctx, client, topic))
	}, kgo.ProducerLinger(0))
	if err != nil {
		return err
	}
	for until := time.Now().Add(deadline); time.Now().Before(until); {
		left, err := s.left(topic)
		if err != nil || len(left) <= transactions/2 {
			return err
		}
	}
	return errors.New("not compacted in time")
}

func writeKeyed(ctx context.Context, client *kgo.Client, topic string) error {
	filler := strings.Repeat("x", 33_000)
	for number := range transactions {
		record := &kgo.Record{Topic: topic, Key: fmt.Append(nil, number%keys), Value: []byte(filler)}
		if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
			return err
		}
	}
	refused := client.ProduceSync(ctx, &kgo.Record{Topic: topic, Value: []byte("no key")}).FirstErr()
	return same(true, errors.Is(refused, kerr.InvalidRecord))
}

// left are the offsets of the records that are there; the newest record of each key is one of them.
func (s *settings) left(topic string) ([]int64, error) {
	var offsets []int64
	err := s.within("plaintext", func(ctx context.Context, client *kgo.Client) error {
		for len(offsets) == 0 || offsets[len(offsets)-1] < transactions-1 {
			found, err := read(ctx, client, 1)
			if err != nil {
				return err
			}
			for _, record := range found {
				err = first(err, same(fmt.Sprint(record.Offset%keys), string(record.Key)))
				offsets = append(offsets, record.Offset)
			}
			if err != nil {
				return err
			}
		}
		return nil
	}, from(topic, kgo.NewOffset().AtStart()))
	for newest := int64(transactions - keys); newest < transactions; newest++ {
		err = first(err, same(true, slices.Contains(offsets, newest)))
	}
	return offsets, err
}
