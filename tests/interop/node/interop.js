// The cases of tests/interop with KafkaJS; prints one JSON line per case.
'use strict';

const { CompressionTypes, ConfigResourceTypes } = require('kafkajs');
const { WAIT_MS, kafka, plan, settled, withAdmin, withConsumer, withProducer } = require('./client.js');
const { installCodecs } = require('./codecs.js');
const groups = require('./groups.js');
const transactions = require('./transactions.js');

const GROUP_PARTITIONS = 6;
const GROUP_RECORDS = 60;
const CODECS = {
  none: CompressionTypes.None,
  gzip: CompressionTypes.GZIP,
  snappy: CompressionTypes.Snappy,
  lz4: CompressionTypes.LZ4,
  zstd: CompressionTypes.ZSTD,
};

const cases = {
  acks,
  idempotent,
  'auto-create': autoCreate,
  'log-append-time': logAppendTime,
  'too-large': (topic) => refusal(topic, 'x'.repeat(5000)),
  'keyless-on-compacted': (topic) => refusal(topic, 'x'),
  seek,
  'offsets-for-times': offsetsForTimes,
  'commit-resume': commitResume,
  group,
  'create-delete-topic': createDeleteTopic,
  configs,
  'create-partitions': createPartitions,
  'delete-records': deleteRecords,
  ...groups,
  ...transactions,
};

async function main() {
  await installCodecs();
  for (const { name, topic } of plan.tasks) {
    const line = { case: name };
    try {
      line.observed = name.startsWith('codec-')
        ? await codec(topic, name.slice('codec-'.length))
        : await cases[name](topic);
    } catch (error) {
      line.error = String(error.stack);
    }
    console.log(JSON.stringify(line));
  }
}

async function codec(topic, name) {
  const messages = plan.records.map((record) => ({
    key: bytes(record.key),
    value: bytes(record.value),
    headers: grouped(record.headers),
    timestamp: String(record.timestamp),
  }));
  await withProducer({}, (producer) =>
    producer.send({ topic, messages, compression: CODECS[name] }));
  const rows = await read(topic, messages.length);
  return {
    records: rows.map((row) => ({
      key: text(row.key),
      value: text(row.value),
      headers: Object.entries(row.headers).flatMap(([header, values]) =>
        [values].flat().map((value) => [header, text(value)])),
      timestamp: Number(row.timestamp),
      offset: Number(row.offset),
    })),
  };
}

async function acks(topic) {
  for (const [name, level] of [['0', 0], ['1', 1], ['all', -1]]) {
    await withProducer({}, (producer) =>
      producer.send({ topic, acks: level, messages: [{ value: `acks ${name}` }] }));
  }
  const rows = await read(topic, 3);
  return { values: rows.map((row) => row.value.toString()).sort() };
}

async function idempotent(topic) {
  const offsets = [];
  await withProducer({ idempotent: true, maxInFlightRequests: 1 }, async (producer) => {
    for (let first = 0; first < 100; first += 10) {
      const messages = Array.from({ length: 10 }, (_, i) => ({ value: String(first + i) }));
      const [{ baseOffset }] = await producer.send({ topic, acks: -1, messages });
      offsets.push(...messages.map((_, i) => Number(baseOffset) + i));
    }
  });
  return { offsets };
}

async function autoCreate(topic) {
  await withProducer({ allowAutoTopicCreation: true }, (producer) =>
    producer.send({ topic, messages: [{ value: 'made by use' }] }));
  return { values: (await read(topic, 1)).map((row) => row.value.toString()) };
}

async function logAppendTime(topic) {
  const message = { value: 'late', timestamp: String(plan.seeded_at) };
  await withProducer({}, (producer) => producer.send({ topic, messages: [message] }));
  return { timestamp: Number((await read(topic, 1))[0].timestamp) };
}

async function refusal(topic, value) {
  try {
    await withProducer({ retry: { retries: 0 } }, (producer) =>
      producer.send({ topic, messages: [{ value }] }));
  } catch (error) {
    return { error: (error.cause ?? error).code };
  }
  return { error: 0 };
}

async function seek(topic) {
  const offsets = [];
  let sought;
  let beginning;
  await withConsumer({ groupId: topic }, topic, (consumer, done) => ({
    eachMessage: async ({ message }) => {
      const offset = Number(message.offset);
      offsets.push(offset);
      if (offsets.length === 1) {
        consumer.seek({ topic, partition: 0, offset: '7' });
      } else if (sought === undefined) {
        sought = offset;
        consumer.seek({ topic, partition: 0, offset: '-2' });
      } else if (beginning === undefined) {
        beginning = offset;
        done();
      }
    },
  }));
  const [ends] = await withAdmin((admin) => admin.fetchTopicOffsets(topic));
  return { seek: sought, beginning, end: Number(ends.offset) };
}

// For a time after the last record the client answers the end of the partition.
async function offsetsForTimes(topic) {
  const times = {
    before: plan.seeded_at - 1,
    exact: plan.seeded_at + 5000,
    between: plan.seeded_at + 5001,
    after: plan.seeded_at + 20000,
  };
  return withAdmin(async (admin) => {
    const [{ high }] = await admin.fetchTopicOffsets(topic);
    const found = {};
    for (const [name, time] of Object.entries(times)) {
      const [{ offset }] = await admin.fetchTopicOffsetsByTimestamp(topic, time);
      found[name] = offset === high ? null : Number(offset);
    }
    return found;
  });
}

async function commitResume(topic) {
  await withConsumer({ groupId: topic }, topic, (consumer, done) => ({
    autoCommit: false,
    eachMessage: async ({ message }) => {
      if (message.offset === '4') {
        await consumer.commitOffsets([{ topic, partition: 0, offset: '5', metadata: 'a note' }]);
        done();
      }
    },
  }));
  const [{ partitions: [committed] }] = await withAdmin((admin) =>
    admin.fetchOffsets({ groupId: topic, topics: [topic] }));
  let resumedAt;
  await withConsumer({ groupId: topic }, topic, (consumer, done) => ({
    autoCommit: false,
    eachMessage: async ({ message }) => {
      resumedAt ??= Number(message.offset);
      done();
    },
  }));
  return {
    committed: Number(committed.offset),
    metadata: committed.metadata,
    resumed_at: resumedAt,
  };
}

async function group(topic) {
  const seen = new Set();
  const members = await Promise.all([1, 2, 3].map(() => join(topic, seen)));
  try {
    const assignments = await settle(members, seen);
    await members.pop().consumer.disconnect();
    const afterLeave = await settle(members, seen);
    return { assignments, after_leave: afterLeave, values: [...seen] };
  } finally {
    await Promise.all(members.map((member) => member.consumer.disconnect()));
  }
}

async function join(topic, seen) {
  const consumer = kafka.consumer({ groupId: topic, heartbeatInterval: 200, maxWaitTimeInMs: 100 });
  const member = { consumer, assigned: [] };
  consumer.on(consumer.events.GROUP_JOIN, ({ payload }) => {
    member.assigned = payload.memberAssignment[topic] ?? [];
  });
  await consumer.connect();
  await consumer.subscribe({ topic, fromBeginning: true });
  await consumer.run({ eachMessage: async ({ message }) => seen.add(message.value.toString()) });
  return member;
}

async function settle(members, seen) {
  const deadline = Date.now() + WAIT_MS;
  while (Date.now() < deadline) {
    const assigned = members.map((member) => member.assigned);
    const held = assigned.flat().length;
    if (assigned.every((row) => row.length > 0) && held === GROUP_PARTITIONS
        && seen.size === GROUP_RECORDS) {
      return assigned;
    }
    await new Promise((resolve) => setTimeout(resolve, 20));
  }
  throw new Error(`the group did not settle, ${seen.size} values`);
}

async function createDeleteTopic(topic) {
  return withAdmin(async (admin) => {
    const made = { topics: [{ topic, numPartitions: 3, replicationFactor: 1 }] };
    await admin.createTopics(made);
    // The client answers false where the broker says that the topic is there already.
    const again = (await admin.createTopics(made)) ? 0 : 36;
    const isListed = async () => (await admin.listTopics()).includes(topic);
    const listed = await settled(isListed, true);
    const partitions = await partitionCount(admin, topic);
    // With its defaults the client asks for -1 partitions in a version before KIP-464.
    await admin.createTopics({ topics: [{ topic: `${topic}-default` }] });
    await admin.deleteTopics({ topics: [topic, `${topic}-default`] });
    return { partitions, again, listed, listed_after_delete: await settled(isListed, false) };
  });
}

async function configs(topic) {
  const type = ConfigResourceTypes.TOPIC;
  return withAdmin(async (admin) => {
    const retention = async () => {
      const resources = [{ type, name: topic, configNames: ['retention.ms'] }];
      const described = await admin.describeConfigs({ resources, includeSynonyms: false });
      return described.resources[0].configEntries[0].configValue;
    };
    const before = await retention();
    const configEntries = [{ name: 'retention.ms', value: '7200000' }];
    await admin.alterConfigs({ resources: [{ type, name: topic, configEntries }] });
    return { default: before, altered: await settled(retention, '7200000') };
  });
}

async function createPartitions(topic) {
  return withAdmin(async (admin) => {
    await admin.createPartitions({ topicPartitions: [{ topic, count: 3 }] });
    return { partitions: await settled(() => partitionCount(admin, topic), 3) };
  });
}

async function deleteRecords(topic) {
  return withAdmin(async (admin) => {
    // Without a look at the topic first, the client has no metadata and fails.
    await admin.fetchTopicOffsets(topic);
    await admin.deleteTopicRecords({ topic, partitions: [{ partition: 0, offset: '5' }] });
    const [{ low }] = await admin.fetchTopicOffsets(topic);
    // The client keeps the low watermark of the answer to itself.
    return { low_watermark: Number(low), earliest: Number(low) };
  });
}

async function partitionCount(admin, topic) {
  const { topics } = await admin.fetchTopicMetadata({ topics: [topic] });
  return topics[0].partitions.length;
}

async function read(topic, count) {
  const rows = [];
  await withConsumer({ groupId: `${topic}-reader` }, topic, (consumer, done) => ({
    autoCommit: false,
    eachMessage: async ({ message }) => {
      rows.push(message);
      if (rows.length === count) {
        done();
      }
    },
  }));
  return rows;
}

function grouped(headers) {
  const named = {};
  for (const [name, value] of headers) {
    (named[name] ??= []).push(bytes(value));
  }
  return named;
}

function bytes(encoded) {
  return encoded === null ? null : Buffer.from(encoded, 'base64');
}

function text(data) {
  return data === null || data === undefined ? null : Buffer.from(data).toString('base64');
}

main();
