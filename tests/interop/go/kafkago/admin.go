package main

import (
	"github.com/segmentio/kafka-go"

	"headrace/interop/plan"
)

func (t *task) createDeleteTopic() (plan.Observed, error) {
	create := func() error {
		made, err := t.client.CreateTopics(t.ctx, &kafka.CreateTopicsRequest{Topics: []kafka.TopicConfig{
			{Topic: t.topic, NumPartitions: 3, ReplicationFactor: 1},
		}})
		if err != nil {
			return err
		}
		return made.Errors[t.topic]
	}
	if err := create(); err != nil {
		return nil, err
	}
	refusal, err := refused(create())
	if err != nil {
		return nil, err
	}
	partitions, err := plan.Settled(t.partitions, 3)
	if err != nil {
		return nil, err
	}
	request := &kafka.DeleteTopicsRequest{Topics: []string{t.topic}}
	if _, err := t.client.DeleteTopics(t.ctx, request); err != nil {
		return nil, err
	}
	after, err := plan.Settled(t.partitions, 0)
	return plan.Observed{
		"partitions":          partitions,
		"again":               refusal["error"],
		"listed":              partitions > 0,
		"listed_after_delete": after > 0,
	}, err
}

func (t *task) configs() (plan.Observed, error) {
	before, err := t.retention()
	if err != nil {
		return nil, err
	}
	altered, err := t.client.IncrementalAlterConfigs(t.ctx, &kafka.IncrementalAlterConfigsRequest{
		Resources: []kafka.IncrementalAlterConfigsRequestResource{{
			ResourceType: kafka.ResourceTypeTopic,
			ResourceName: t.topic,
			Configs: []kafka.IncrementalAlterConfigsRequestConfig{
				{Name: "retention.ms", Value: "7200000", ConfigOperation: kafka.ConfigOperationSet},
			},
		}},
	})
	if err != nil {
		return nil, err
	}
	if err := altered.Resources[0].Error; err != nil {
		return nil, err
	}
	after, err := plan.Settled(t.retention, "7200000")
	return plan.Observed{"default": before, "altered": after}, err
}

func (t *task) createPartitions() (plan.Observed, error) {
	made, err := t.client.CreatePartitions(t.ctx, &kafka.CreatePartitionsRequest{
		Topics: []kafka.TopicPartitionsConfig{{Name: t.topic, Count: 3}},
	})
	if err != nil {
		return nil, err
	}
	if err := made.Errors[t.topic]; err != nil {
		return nil, err
	}
	partitions, err := plan.Settled(t.partitions, 3)
	return plan.Observed{"partitions": partitions}, err
}

func (t *task) retention() (string, error) {
	described, err := t.client.DescribeConfigs(t.ctx, &kafka.DescribeConfigsRequest{
		Resources: []kafka.DescribeConfigRequestResource{{
			ResourceType: kafka.ResourceTypeTopic,
			ResourceName: t.topic,
			ConfigNames:  []string{"retention.ms"},
		}},
	})
	if err != nil {
		return "", err
	}
	return described.Resources[0].ConfigEntries[0].ConfigValue, nil
}

// partitions asks the broker itself: the client's own copy of the metadata may be six seconds old.
func (t *task) partitions() (partitions int, err error) {
	connection, err := kafka.DialContext(t.ctx, "tcp", t.plan.Bootstrap)
	if err != nil {
		return 0, err
	}
	defer connection.Close()
	rows, err := connection.ReadPartitions()
	for _, row := range rows {
		if row.Topic == t.topic {
			partitions++
		}
	}
	return partitions, err
}
