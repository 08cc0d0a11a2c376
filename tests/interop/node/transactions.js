// The cases of tests/interop/transaction_cases.py; the transactional id is the topic's name.
'use strict';

const { settled, withAdmin, withConsumer, withProducer } = require('./client.js');

async function commit(topic) {
  return withTransactional(topic, async (producer) => {
    const transaction = await producer.transaction();
    await send(transaction, topic, 'a', 'b');
    await withProducer({}, (plain) =>
      plain.send({ topic, messages: [{ value: 'plain', partition: 1 }] }));
    const open = await values(topic, 'committed', 'plain');
    const uncommitted = await values(topic, 'uncommitted', 'b', { only: 0 });
    await transaction.commit();
    return { open, uncommitted, committed: await values(topic, 'committed', 'b', { only: 0 }) };
  });
}

async function abort(topic) {
  await withTransactional(topic, async (producer) => {
    const transaction = await producer.transaction();
    await send(transaction, topic, 'a', 'b');
    await transaction.abort();
    await whole(producer, topic, 'last');
  });
  return both(topic);
}

async function zombie(topic) {
  return withTransactional(topic, async (first) => {
    const late = await first.transaction();
    await send(late, topic, 'zombie');
    return withTransactional(topic, async (second) => {
      await whole(second, topic, 'new');
      let fenced = false;
      try {
        await send(late, topic, 'late');
        await late.commit();
      } catch (error) {
        fenced = ['INVALID_PRODUCER_EPOCH', 'PRODUCER_FENCED'].includes(error.type);
      }
      await whole(second, topic, 'last');
      return { fenced, ...(await both(topic)) };
    });
  });
}

async function consumeProcessProduce(topic) {
  const observed = {};
  await withTransactional(topic, async (producer) => {
    await copy(topic, producer, async (transaction) => {
      observed.while_open = await committed(topic);
      await transaction.abort();
    });
    observed.after_abort = await settled(() => committed(topic), null);
    await copy(topic, producer, (transaction) => transaction.commit());
    observed.after_commit = await settled(() => committed(topic), 5);
  });
  await withTransactional(topic, async (producer) => {
    observed.resumed_at = await copy(topic, producer, (transaction) => transaction.commit());
    observed.at_end = await settled(() => committed(topic), 10);
  });
  return { ...observed, outputs: await values(`${topic}-out`, 'committed', '0-9') };
}

async function epochs(topic) {
  await withTransactional(topic, async (producer) => {
    for (const value of ['one', 'two', 'three']) {
      await whole(producer, topic, value);
    }
  });
  return { values: await values(topic, 'committed', 'three') };
}

function withTransactional(topic, use) {
  return withProducer({ transactionalId: topic, idempotent: true, maxInFlightRequests: 1 }, use);
}

function send(transaction, topic, ...sent) {
  const messages = sent.map((value) => ({ value, partition: 0 }));
  return transaction.send({ topic, messages });
}

async function whole(producer, topic, value) {
  const transaction = await producer.transaction();
  await send(transaction, topic, value);
  await transaction.commit();
}

// Copies five inputs in a transaction that `end` gets; the offset of the first.
async function copy(topic, producer, end) {
  const inputs = [];
  await withConsumer({ groupId: topic }, topic, (consumer, done) => ({
    autoCommit: false,
    eachMessage: async ({ message }) => {
      inputs.push(message);
      if (inputs.length === 5) {
        done();
      }
    },
  }));
  const copied = inputs.slice(0, 5);
  const transaction = await producer.transaction();
  await send(transaction, `${topic}-out`, ...copied.map((message) => message.value));
  const offset = String(Number(copied[4].offset) + 1);
  await transaction.sendOffsets({
    consumerGroupId: topic, topics: [{ topic, partitions: [{ partition: 0, offset }] }],
  });
  await end(transaction);
  return Number(copied[0].offset);
}

// The offset of the group, null where it has none.
async function committed(topic) {
  const [{ partitions: [{ offset }] }] = await withAdmin((admin) =>
    admin.fetchOffsets({ groupId: topic, topics: [topic] }));
  return offset === '-1' ? null : Number(offset);
}

async function both(topic) {
  return {
    committed: await values(topic, 'committed', 'last'),
    uncommitted: await values(topic, 'uncommitted', 'last'),
  };
}

// All values up to this one, as a consumer of this isolation gets them.
async function values(topic, isolation, last, { only } = {}) {
  const seen = [];
  const settings = {
    groupId: `${topic}-${isolation}-${last}`, readUncommitted: isolation === 'uncommitted',
  };
  await withConsumer(settings, topic, (consumer, done) => ({
    autoCommit: false,
    eachMessage: async ({ partition, message }) => {
      if (only === undefined || partition === only) {
        seen.push(message.value.toString());
      }
      if (seen.includes(last)) {
        done();
      }
    },
  }));
  return seen;
}

module.exports = {
  commit,
  abort,
  zombie,
  'consume-process-produce': consumeProcessProduce,
  'epoch-kept': epochs,
};
