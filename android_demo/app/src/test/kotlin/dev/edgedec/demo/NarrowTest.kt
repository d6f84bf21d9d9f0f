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

    private fun check(state: String) {
        phone.idle(1000)
        assertEquals(state, emptyList<String>(), texts(phone.activity.window.decorView).filter(::cut).map { it.text.toString() })
    }

    private fun cut(view: TextView): Boolean {
        val layout = view.layout ?: return false
        val lines = if (view.maxLines > 0) minOf(layout.lineCount, view.maxLines) else layout.lineCount
        val tall = layout.getLineBottom(lines - 1) > view.height - view.totalPaddingTop - view.totalPaddingBottom + 1
        val wide = (0 until lines).any { layout.getLineWidth(it) > view.width - view.totalPaddingLeft - view.totalPaddingRight + 1 }
        return tall || wide || view.width == 0
    }

    private fun texts(view: View): List<TextView> = when {
        !view.isShown -> emptyList()
        view is TextView -> listOf(view).filter { it.text.isNotEmpty() }
        view is ViewGroup -> (0 until view.childCount).flatMap { texts(view.getChildAt(it)) }
        else -> emptyList()
    }
}
