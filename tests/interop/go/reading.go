package main

import (
	"context"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

func (s *settings) reading() []check {
	return []check{{"consume: seek", s.seek}, {"consume: by timestamp", s.byTimestamp}}
}

// written makes a topic whose record of number n is of the time 1000 + n.
func (s *settings) written() (string, error) {
	topic, err := s.topic(1)
	if err != nil {
		return "", err
	}
	return topic, s.within("plaintext", func(ctx context.Context, client *kgo.Client) error {
		records := make([]*kgo.Record, count)
		for number := range records {
			at := time.UnixMilli(int64(1000 + number))
			records[number] = &kgo.Record{Topic: topic, Value: []byte(fmt.Sprint(number)), Timestamp: at}
		}
		return client.ProduceSync(ctx, records...).FirstErr()
	})
}

func wantNext(ctx context.Context, client *kgo.Client, wanted int) error {
	found, err := read(ctx, client, 1)
	if err != nil {
		return err
	}
	return same(fmt.Sprint(wanted), string(found[0].Value))
}

func (s *settings) seek() error {
	topic, err := s.written()
	if err != nil {
		return err
	}
	return s.within("plaintext", func(ctx context.Context, client *kgo.Client) error {
		err := wantNext(ctx, client, 0)
		for _, place := range []int64{40, 7, 99} {
			to := map[int32]kgo.EpochOffset{0: {Epoch: -1, Offset: place}}
			client.SetOffsets(map[string]map[int32]kgo.EpochOffset{topic: to})
			err = first(err, wantNext(ctx, client, int(place)))
		}
		return err
	}, from(topic, kgo.NewOffset().AtStart()))
}

func (s *settings) byTimestamp() error {
	topic, err := s.written()
	if err != nil {
		return err
	}
	next := func(ctx context.Context, client *kgo.Client) error { return wantNext(ctx, client, 50) }
	return s.within("plaintext", next, from(topic, kgo.NewOffset().AfterMilli(1050)))
}
