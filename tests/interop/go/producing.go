package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
)

const count = 100

func (s *settings) producing() []check {
	manual := kgo.RecordPartitioner(kgo.ManualPartitioner())
	plainly := kgo.DisableIdempotentWrite()
	round := func(feature string, options ...kgo.Opt) check {
		return check{feature, func() error { return s.roundTrip(append(options, manual)...) }}
	}
	codec := func(codec kgo.CompressionCodec) kgo.Opt { return kgo.ProducerBatchCompression(codec) }
	return []check{
		round("produce: acks 0", kgo.RequiredAcks(kgo.NoAck()), plainly),
		round("produce: acks 1", kgo.RequiredAcks(kgo.LeaderAck()), plainly),
		round("produce: acks all", kgo.RequiredAcks(kgo.AllISRAcks()), plainly),
		round("produce: gzip", codec(kgo.GzipCompression())),
		round("produce: snappy", codec(kgo.SnappyCompression())),
		round("produce: lz4", codec(kgo.Lz4Compression())),
		round("produce: zstd", codec(kgo.ZstdCompression())),
		round("produce: idempotent"),
		{"produce: the leader is killed", s.leaderIsKilled},
		{"records: keys, headers, timestamps", s.record},
	}
}

func (s *settings) roundTrip(options ...kgo.Opt) error {
	topic, err := s.topic(1)
	if err != nil {
		return err
	}
	err = s.within("plaintext", func(ctx context.Context, client *kgo.Client) error {
		return send(ctx, client, topic, 1, count)
	}, options...)
	return first(err, s.wantNumbers("plaintext", topic, count))
}

func (s *settings) leaderIsKilled() error {
	topic, err := s.topic(1)
	if err != nil {
		return err
	}
	err = s.within("plaintext", func(ctx context.Context, client *kgo.Client) error {
		var failed []error
		for number := range 2000 {
			record := &kgo.Record{Topic: topic, Value: []byte(fmt.Sprint(number))}
			client.Produce(ctx, record, func(_ *kgo.Record, err error) { failed = append(failed, err) })
			if number == 1000 {
				if err := ask("kill the leader"); err != nil {
					return err
				}
			}
		}
		return first(client.Flush(ctx), errors.Join(failed...))
	})
	return first(err, ask("start the node again"), s.wantNumbers("plaintext", topic, 2000))
}

func (s *settings) record() error {
	topic, err := s.topic(1)
	if err != nil {
		return err
	}
	wanted := &kgo.Record{
		Topic: topic, Key: []byte("key"), Value: []byte("value"), Timestamp: time.UnixMilli(1_234_567),
		Headers: []kgo.RecordHeader{{Key: "h", Value: []byte("1")}, {Key: "h"}},
	}
	err = s.within("plaintext", func(ctx context.Context, client *kgo.Client) error {
		return client.ProduceSync(ctx, wanted, &kgo.Record{Topic: topic}).FirstErr()
	})
	if err != nil {
		return err
	}
	return s.within("plaintext", func(ctx context.Context, client *kgo.Client) error {
		found, err := read(ctx, client, 2)
		if err != nil {
			return err
		}
		nulls := found[1].Key == nil && found[1].Value == nil
		headers := len(found[0].Headers) == 2 && found[0].Headers[0].Key == "h" &&
			bytes.Equal(found[0].Headers[0].Value, []byte("1")) && found[0].Headers[1].Value == nil
		return first(
			same("key=value", string(found[0].Key)+"="+string(found[0].Value)),
			same(int64(1_234_567), found[0].Timestamp.UnixMilli()), same(true, headers), same(true, nulls))
	}, from(topic, kgo.NewOffset().AtStart()))
}
