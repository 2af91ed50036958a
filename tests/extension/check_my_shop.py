import os

ORDERS = "select customer, item, quantity from shop_orders o join shop_lines on order_id = o.id where run_id = :run_id"


def test_my_shop(crash_matrix, tmp_path):
    def env(run_id):
        return {"SHOP_WAREHOUSE": str(tmp_path / run_id), "SUREFOOT_SMTP_URL": os.environ["SHOP_SMTP_URL"]}

    def reservations(run_id):
        return {"reserved": sum(len(file.read_text().splitlines()) for file in tmp_path.glob(run_id))}

    wish = {"customer": "eve@example.org", "item": "lamp", "quantity": 3}
    kinds = ("kill", "stop", "lost-response")
    print(crash_matrix("shop", wish, env=env, count=reservations, rows=(ORDERS,), kinds=kinds, cases=4))
