package main

import (
	"context"
	"errors"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kgo"
)

func (s *settings) administration() []check {
	with := func(feature string, do func(context.Context, *kadm.Client, string) error) check {
		return check{feature, func() error {
			topic, err := s.topic(2)
			if err != nil {
				return err
			}
			return s.within("plaintext", func(ctx context.Context, client *kgo.Client) error {
				return do(ctx, kadm.NewClient(client), topic)
			})
		}}
	}
	return []check{
		with("admin: topics", topics),
		with("admin: partitions", morePartitions),
		with("admin: settings", configs),
		with("admin: groups", s.described),
		with("admin: group offsets", groupOffsets),
		with("admin: offsets", s.offsets),
		with("admin: delete records", s.deleteRecords),
		with("admin: cluster", s.cluster),
	}
}

func refused(wanted, got error) error {
	if !errors.Is(got, wanted) {
		return errors.Join(errors.New("wanted "+wanted.Error()), got)
	}
	return nil
}

func topics(ctx context.Context, admin *kadm.Client, topic string) error {
	_, again := admin.CreateTopic(ctx, 1, 1, nil, topic)
	told, err := admin.ListTopics(ctx, topic)
	err = first(refused(kerr.TopicAlreadyExists, again), err, told.Error(), same(2, len(told[topic].Partitions)))
	_, gone := admin.DeleteTopic(ctx, topic)
	_, twice := admin.DeleteTopic(ctx, topic)
	left, err2 := admin.ListTopics(ctx)
	return first(err, gone, refused(kerr.UnknownTopicOrPartition, twice), err2, same(false, left.Has(topic)))
}

func morePartitions(ctx context.Context, admin *kadm.Client, topic string) error {
	grown, err := admin.UpdatePartitions(ctx, 5, topic)
	err = first(err, grown.Error())
	told, err2 := admin.ListTopics(ctx, topic)
	return first(err, err2, same(5, len(told[topic].Partitions)))
}

func segmentBytes(ctx context.Context, admin *kadm.Client, topic string) (kadm.Config, error) {
	told, err := admin.DescribeTopicConfigs(ctx, topic)
	if err != nil {
		return kadm.Config{}, err
	}
	one, err := told.On(topic, nil)
	for _, config := range one.Configs {
		if config.Key == "segment.bytes" {
			return config, err
		}
	}
	return kadm.Config{}, first(err, errors.New("segment.bytes is not told"))
}

func configs(ctx context.Context, admin *kadm.Client, topic string) error {
	change := func(op kadm.IncrementalOp, name, value string) error {
		alter := []kadm.AlterConfig{{Op: op, Name: name, Value: kadm.StringPtr(value)}}
		told, err := admin.AlterTopicConfigs(ctx, alter, topic)
		if err != nil {
			return err
		}
		one, err := told.On(topic, nil)
		return first(err, one.Err)
	}
	err := change(kadm.SetConfig, "segment.bytes", "70000")
	set, err2 := segmentBytes(ctx, admin, topic)
	err = first(err, err2, same("70000", set.MaybeValue()), change(kadm.DeleteConfig, "segment.bytes", ""))
	unset, err3 := segmentBytes(ctx, admin, topic)
	return first(err, err3, same("DEFAULT_CONFIG", unset.Source.String()),
		refused(kerr.InvalidConfig, change(kadm.SetConfig, "colour", "red")))
}

func (s *settings) described(ctx context.Context, admin *kadm.Client, topic string) error {
	one, err := s.join(topic)
	if err != nil {
		return err
	}
	err = until([]*member{one}, func() bool { return len(one.has()) == 2 }, "an assignment")
	told, err2 := admin.DescribeGroups(ctx, topic)
	err = first(err, err2, told.Error(), same("Stable", told[topic].State), same(1, len(told[topic].Members)))
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 0, 1, -1)
	one.client.CloseAllowingRebalance()
	err = first(err, admin.CommitAllOffsets(ctx, topic, offsets))
	listed, err2 := admin.ListGroups(ctx)
	_, isListed := listed[topic]
	gone, err3 := admin.DeleteGroups(ctx, topic)
	err = first(err, err2, same(true, isListed), err3, gone.Error())
	listed, err2 = admin.ListGroups(ctx)
	_, isListed = listed[topic]
	return first(err, err2, same(false, isListed))
}

func groupOffsets(ctx context.Context, admin *kadm.Client, topic string) error {
	var offsets kadm.Offsets
	offsets.AddOffset(topic, 1, 5, -1)
	err := admin.CommitAllOffsets(ctx, topic, offsets)
	told, err2 := admin.FetchOffsets(ctx, topic)
	found, _ := told.Lookup(topic, 1)
	gone, err3 := admin.DeleteOffsets(ctx, topic, offsets.TopicsSet())
	err = first(err, err2, same(int64(5), found.At), err3, gone.Error())
	told, err2 = admin.FetchOffsets(ctx, topic)
	return first(err, err2, same(0, len(told)))
}

func (s *settings) offsets(ctx context.Context, admin *kadm.Client, topic string) error {
	err := s.within("plaintext", func(ctx context.Context, client *kgo.Client) error {
		for _, at := range []int64{1000, 3000, 2000} {
			record := &kgo.Record{Topic: topic, Partition: 0, Timestamp: time.UnixMilli(at)}
			if err := client.ProduceSync(ctx, record).FirstErr(); err != nil {
				return err
			}
		}
		return nil
	}, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	place := func(told kadm.ListedOffsets, err error) int64 {
		found, _ := told.Lookup(topic, 0)
		if first(err, told.Error()) != nil {
			return -1000
		}
		return found.Offset
	}
	return first(err,
		same(int64(0), place(admin.ListStartOffsets(ctx, topic))),
		same(int64(3), place(admin.ListEndOffsets(ctx, topic))),
		same(int64(1), place(admin.ListOffsetsAfterMilli(ctx, 1500, topic))),
		same(int64(1), place(admin.ListMaxTimestampOffsets(ctx, topic))))
}

func (s *settings) deleteRecords(ctx context.Context, admin *kadm.Client, topic string) error {
	err := s.within("plaintext", func(ctx context.Context, client *kgo.Client) error {
		return send(ctx, client, topic, 1, 5)
	}, kgo.RecordPartitioner(kgo.ManualPartitioner()))
	before := func(offset int64) (kadm.DeleteRecordsResponse, error) {
		var offsets kadm.Offsets
		offsets.AddOffset(topic, 0, offset, -1)
		told, err := admin.DeleteRecords(ctx, offsets)
		found, _ := told.Lookup(topic, 0)
		return found, err
	}
	deleted, err2 := before(3)
	beyond, err3 := before(6)
	start, err4 := admin.ListStartOffsets(ctx, topic)
	found, _ := start.Lookup(topic, 0)
	return first(err, err2, deleted.Err, same(int64(3), deleted.LowWatermark), err3,
		refused(kerr.OffsetOutOfRange, beyond.Err), err4, same(int64(3), found.Offset))
}

func (s *settings) cluster(ctx context.Context, admin *kadm.Client, _ string) error {
	told, err := admin.BrokerMetadata(ctx)
	return first(err, same(3, len(told.Brokers)), same(s.given["cluster"], told.Cluster),
		same(true, told.Controller >= 0))
}
