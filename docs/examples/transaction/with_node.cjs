// An order and the mail that confirms it, in one transaction: with node-postgres.
//
//     npm install pg
//     PGHOST=db.example PGUSER=shop PGDATABASE=shop node with_node.cjs
//
// The login has the role pillarbox_application, and the table
// `CREATE TABLE orders (id bigserial PRIMARY KEY, customer text NOT NULL)`.

const { Client } = require("pg");

class Declined extends Error {}

/** The message as it arrives, in octets: its lines end with CR LF. */
function confirmation(order, customer) {
  const lines = ["From: Shop <shop@example.com>", `To: ${customer}`, `Subject: Your order ${order}`, "", "Thank you.", ""];
  return Buffer.from(lines.join("\r\n"));
}

/** Place an order: the order and its confirmation, or neither. */
async function place(client, customer, card = "good") {
  await client.query("BEGIN");
  try {
    const inserted = await client.query("INSERT INTO orders (customer) VALUES ($1) RETURNING id", [customer]);
    const order = inserted.rows[0].id;
    await client.query("SELECT pillarbox.enqueue('shop@example.com', ARRAY[$1], $2, idempotency_key => $3)", [
      customer,
      confirmation(order, customer),
      `order-${order}`,
    ]);
    if (card === "declined") throw new Declined();
    await client.query("COMMIT");
    return order;
  } catch (error) {
    await client.query("ROLLBACK");
    throw error;
  }
}

async function main() {
  const client = new Client(); // PGHOST, PGUSER and their like name the database
  await client.connect();
  console.log("order", await place(client, "ann@example.net"), "is confirmed");
  try {
    await place(client, "not an address");
  } catch (error) {
    if (error.code !== "22023") throw error;
    console.log("no order:", error.message);
  }
  try {
    await place(client, "bob@example.net", "declined");
  } catch (error) {
    if (!(error instanceof Declined)) throw error;
    console.log("no order: the card was declined");
  }
  await client.end();
}

main();
