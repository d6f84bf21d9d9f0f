package dev.edgedec.demo

import android.view.View
import android.view.ViewGroup
import android.widget.TextView
import org.junit.Assert.assertEquals
import org.junit.Test
import org.robolectric.RuntimeEnvironment
import org.robolectric.annotation.Config
import org.robolectric.annotation.GraphicsMode

/** A small phone with large letters: nothing is cut off. */
@GraphicsMode(GraphicsMode.Mode.NATIVE)
@Config(sdk = [34], qualifiers = "w360dp-h640dp-hdpi")
class NarrowTest : PhoneTest() {
    @Test
    fun `no words are cut off`() {
        RuntimeEnvironment.setFontScale(1.3f)
        app.chat = true
        startReady()
        decode("def f(x):")
        engine.say("\n    return", " x")
        engine.end(drafted = 128, accepted = 64)
        check("a text")
        phone.tap(R.id.race_start)
        repeat(2) {
            engine.say("\n    return", " x")
            engine.end(drafted = 128, accepted = 64)
            phone.idle()
        }
        check("a race")
        phone.tap(R.id.settings_open)
        check("settings")
        phone.turn()
        check("settings in landscape")
        phone.back()
        check("a race in landscape")
    }

    @Test
    fun `words that are cut off are found`() {
        startReady()
        phone.view<TextView>(R.id.status).height = 5
        phone.idle()
        assertEquals(listOf(status), cutOff().map { it.substringAfter("'").substringBefore("'") })
    }

    private fun check(state: String) {
        phone.idle(1000)
        assertEquals(state, emptyList<String>(), cutOff())
    }

    private fun cutOff(): List<String> = texts(phone.activity.window.decorView).mapNotNull(::cut)

    /** Returns what is cut off, or null. */
    private fun cut(view: TextView): String? {
        val layout = view.layout ?: return null
        val lines = if (view.maxLines > 0) minOf(layout.lineCount, view.maxLines) else layout.lineCount
        val room = view.height - view.totalPaddingTop - view.totalPaddingBottom
        val width = view.width - view.totalPaddingLeft - view.totalPaddingRight
        val needed = layout.getLineBottom(lines - 1)
        val widest = (0 until lines).maxOf { layout.getLineMax(it) }
        if (needed <= room + 1 && widest <= width + 1) return null
        return "'${view.text}' needs $widest x $needed and has $width x $room"
    }

    private fun texts(view: View): List<TextView> = when {
        !view.isShown -> emptyList()
        view is TextView -> listOf(view).filter { it.text.isNotEmpty() }
        view is ViewGroup -> (0 until view.childCount).flatMap { texts(view.getChildAt(it)) }
        else -> emptyList()
    }
}
