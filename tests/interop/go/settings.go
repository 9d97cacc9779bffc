package main

import (
	"context"
	"fmt"
	"os"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"
)

const (
	deadline = 40 * time.Second
	// everywhere is a replication factor: all nodes.
	everywhere = -1
)

// settings say where the cluster is, and make clients of it.
type settings struct {
	given  map[string]string
	topics int
}

func readSettings(file string) (*settings, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	given := map[string]string{}
	for _, line := range strings.Split(string(text), "\n") {
		if name, value, found := strings.Cut(line, "="); found {
			given[name] = value
		}
	}
	return &settings{given: given}, nil
}

func (s *settings) client(listener string, options ...kgo.Opt) (*kgo.Client, error) {
	seeds := strings.Split(s.given[listener], ",")
	return kgo.NewClient(append([]kgo.Opt{kgo.SeedBrokers(seeds...)}, options...)...)
}

// within gives a client to something that has to end in time.
func (s *settings) within(
	listener string, do func(context.Context, *kgo.Client) error, options ...kgo.Opt,
) error {
	client, err := s.client(listener, options...)
	if err != nil {
		return err
	}
	defer client.CloseAllowingRebalance()
	ctx, cancel := context.WithTimeout(context.Background(), deadline)
	defer cancel()
	return do(ctx, client)
}

// topic makes a new topic of the check's own.
func (s *settings) topic(partitions int32) (string, error) {
	s.topics++
	name := fmt.Sprintf("open-go-%d", s.topics)
	return name, s.within("plaintext", func(ctx context.Context, client *kgo.Client) error {
		_, err := kadm.NewClient(client).CreateTopic(ctx, partitions, everywhere, nil, name)
		return err
	})
}

// send writes values 0, 1, … to partitions in turn.
func send(ctx context.Context, client *kgo.Client, topic string, partitions, count int) error {
	records := make([]*kgo.Record, count)
	for number := range records {
		value := []byte(fmt.Sprint(number))
		records[number] = &kgo.Record{Topic: topic, Partition: int32(number % partitions), Value: value}
	}
	return client.ProduceSync(ctx, records...).FirstErr()
}

// read polls until so many records have come.
func read(ctx context.Context, client *kgo.Client, count int) ([]*kgo.Record, error) {
	var found []*kgo.Record
	for len(found) < count {
		fetches := client.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			return nil, fmt.Errorf("%d of %d records: %w", len(found), count, err)
		}
		found = append(found, fetches.Records()...)
	}
	return found, nil
}

// from says where to begin in a topic's one partition.
func from(topic string, offset kgo.Offset) kgo.Opt {
	return kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: {0: offset}})
}

// wantNumbers reads a topic's one partition and wants 0, 1, … in it.
func (s *settings) wantNumbers(listener, topic string, count int, options ...kgo.Opt) error {
	all := append([]kgo.Opt{from(topic, kgo.NewOffset().AtStart())}, options...)
	return s.within(listener, func(ctx context.Context, client *kgo.Client) error {
		records, err := read(ctx, client, count)
		if err != nil {
			return err
		}
		for number, record := range records {
			if err := same(fmt.Sprint(number), string(record.Value)); err != nil {
				return err
			}
		}
		return same(count, len(records))
	}, all...)
}

func same[T comparable](wanted, got T) error {
	if wanted != got {
		return fmt.Errorf("wanted %v, got %v", wanted, got)
	}
	return nil
}

func first(errors ...error) error {
	for _, err := range errors {
		if err != nil {
			return err
		}
	}
	return nil
}
